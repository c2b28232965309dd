# The grammar engine: its C++ core from the source package that ./run setup unpacked, without its Python binding, its tests
# and its link-time optimisation, which would slow every link of ours. Warnings of its code are not ours.
file(STRINGS ${PROJECT_SOURCE_DIR}/third_party.lock xgrammar_line REGEX "^build sdist xgrammar ")
string(REGEX REPLACE "^build sdist xgrammar ([^ ]+) .*" "\\1" xgrammar_version "${xgrammar_line}")
set(xgrammar_dir ${PROJECT_SOURCE_DIR}/.tools/build/xgrammar-${xgrammar_version})
if(NOT EXISTS ${xgrammar_dir}/include/xgrammar/xgrammar.h)
  message(FATAL_ERROR "${xgrammar_dir}: not found, expected the sources of XGrammar ${xgrammar_version}; ./run setup build")
endif()

file(GLOB xgrammar_sources ${xgrammar_dir}/cpp/*.cc ${xgrammar_dir}/cpp/support/*.cc ${xgrammar_dir}/cpp/converter_ext/*.cc)

# Mended in copies; what is not found means another version.
# mend(FILE FAULTY MENDED)
function(mend file faulty mended)
  set(copy ${CMAKE_CURRENT_BINARY_DIR}/xgrammar/${file})
  get_property(text GLOBAL PROPERTY mended_${file})
  if(NOT text)
    file(READ ${xgrammar_dir}/cpp/${file} text)
    list(REMOVE_ITEM xgrammar_sources ${xgrammar_dir}/cpp/${file})
    list(APPEND xgrammar_sources ${copy})
    set(xgrammar_sources "${xgrammar_sources}" PARENT_SCOPE)
  endif()
  string(FIND "${text}" "${faulty}" at)
  if(at EQUAL -1)
    message(FATAL_ERROR "${xgrammar_dir}/cpp/${file}: not found what is mended here; is XGrammar another version?")
  endif()
  string(REPLACE "${faulty}" "${mended}" text "${text}")
  set_property(GLOBAL PROPERTY mended_${file} "${text}")
  file(CONFIGURE OUTPUT ${copy} CONTENT "${text}" @ONLY)
endfunction()

# Strings with a length held raw control characters, and had no length where texts are excluded from them. Those are our
# tags of calls, which all have a U+FF5C.
mend(json_schema_converter.cc
  [[    if (!excludes_.empty()) {
      WarnDroppedLengthConstraints(spec, rule_name);
    } else {
      int32_t character =
          builder_.AddCharacterClass({{'"', '"'}, {'\\', '\\'}, {'\r', '\r'}, {'\n', '\n'}}, true);]]
  [[    {
      std::vector<CharacterClassElement> unfit = {{0, 0x1f}, {'"', '"'}, {'\\', '\\'}};
      if (!excludes_.empty()) unfit.push_back({0xff5c, 0xff5c});
      int32_t character = builder_.AddCharacterClass(unfit, true);]])
# Patterns come with their escapes; "deepinfer" ones are values of any type (src/grammar/schema_lowering.cc).
mend(json_schema_converter.cc
  [[    return Sequence(
        {ByteString("\""), RegexExpression(*spec.pattern, /*json_string=*/true), ByteString("\"")}
    );]]
  [[    if (spec.format == "deepinfer") return builder_.AddRegex(*spec.pattern);
    return Sequence({ByteString("\""), builder_.AddRegex(*spec.pattern), ByteString("\"")});]])
# Escapes made halves of surrogate pairs.
mend(json_schema_converter.cc
  [[  builder_.UpdateRuleBody(kBasicEscape, Choice({escaped_character, unicode_escape}));]]
  [[  static_cast<void>(unicode_escape);
  int32_t code_point = builder_.AddRegex(
      "u(?:[0-9A-CEFa-cef][0-9A-Fa-f]{3}|[Dd][0-7][0-9A-Fa-f]{2}|"
      "[Dd][89ABab][0-9A-Fa-f]{2}\\\\u[Dd][C-Fc-f][0-9A-Fa-f]{2})");
  builder_.UpdateRuleBody(kBasicEscape, Choice({escaped_character, code_point}));]])
# Classes of characters let ill-formed UTF-8 through: overlong forms, surrogates, and what is beyond U+10FFFF.
mend(fsm_builder.cc
  [[void AddPackedUTF8RangeEdges(FSM& fsm, int from, int to, uint32_t min, uint32_t max) {]]
  [[void AddPackedUTF8RangeEdges(FSM& fsm, int from, int to, uint32_t min, uint32_t max) {
  static constexpr uint32_t kWellFormed[][2] = {
      {0, 0x7f}, {0xc280, 0xdfbf}, {0xe0a080, 0xe0bfbf}, {0xe18080, 0xecbfbf}, {0xed8080, 0xed9fbf},
      {0xee8080, 0xefbfbf}, {0xf0908080, 0xf0bfbfbf}, {0xf1808080, 0xf3bfbfbf}, {0xf4808080, 0xf48fbfbf}};
  for (const auto& [low, high] : kWellFormed) {
    const uint32_t first = std::max(min, low), last = std::min(max, high);
    if (first <= last) AddSameLengthCharacterRange(fsm, from, to, first, last);
  }
}

static void AddIllFormedToo(FSM& fsm, int from, int to, uint32_t min, uint32_t max) {]])

# What reads its private headers is built with it.
list(APPEND xgrammar_sources ${PROJECT_SOURCE_DIR}/src/grammar/packed_grammar.cc)

add_library(xgrammar STATIC EXCLUDE_FROM_ALL ${xgrammar_sources})
# As its authors build it; with C++20 its types are incomplete to clang.
set_target_properties(xgrammar PROPERTIES CXX_STANDARD 17)
target_include_directories(xgrammar PRIVATE ${xgrammar_dir}/cpp ${PROJECT_SOURCE_DIR}/src)
target_include_directories(xgrammar SYSTEM PUBLIC
  ${xgrammar_dir}/include ${xgrammar_dir}/3rdparty/picojson ${xgrammar_dir}/3rdparty/dlpack/include)
target_compile_definitions(xgrammar PRIVATE
  XGRAMMAR_ENABLE_CPPTRACE=0 XGRAMMAR_ENABLE_INTERNAL_CHECK=0 XGRAMMAR_LOG_CUSTOMIZE=1)
target_compile_options(xgrammar PRIVATE -w -O2 -g0)
target_link_libraries(xgrammar PUBLIC Threads::Threads)
if(DEEPINFER_UNITY)
  set_target_properties(xgrammar PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 8)
endif()
