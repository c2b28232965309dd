// The rules travel in the library's own form, JSON, but for the automaton that they share, which it would write out once
// a rule; the masks, nearly all of the bytes, as they lie in memory.
#include "grammar/packed_grammar.h"

#include <cstring>
#include <stdexcept>
#include <vector>

#include "compiled_grammar_impl.h"
#include "support/json_serializer.h"

namespace deepinfer {
namespace {

class Packer {
 public:
  template <typename T>
  void add(const T* data, size_t count) {
    static_assert(std::is_trivially_copyable_v<T>);
    const auto size = static_cast<uint64_t>(count);
    bytes_.append(reinterpret_cast<const char*>(&size), sizeof(size));
    bytes_.append(reinterpret_cast<const char*>(data), count * sizeof(T));
  }
  std::string take() { return std::move(bytes_); }

 private:
  std::string bytes_;
};

class Unpacker {
 public:
  explicit Unpacker(std::string_view bytes) : rest_(bytes) {}

  template <typename T>
  std::vector<T> list() {
    uint64_t count = 0;
    std::memcpy(&count, cut(sizeof(count)).data(), sizeof(count));
    if (count > rest_.size() / sizeof(T)) throw std::runtime_error("a packed grammar is cut short");
    std::vector<T> out(count);
    const std::string_view from = cut(count * sizeof(T));
    if (count > 0) std::memcpy(out.data(), from.data(), from.size());
    return out;
  }
  template <typename T>
  T one() {
    const std::vector<T> found = list<T>();
    if (found.size() != 1) throw std::runtime_error("a packed grammar is damaged");
    return found.front();
  }
  bool done() const { return rest_.empty(); }

 private:
  std::string_view cut(size_t size) {
    if (size > rest_.size()) throw std::runtime_error("a packed grammar is cut short");
    const std::string_view out = rest_.substr(0, size);
    rest_.remove_prefix(size);
    return out;
  }
  std::string_view rest_;
};

void pack_rules(const xgrammar::Grammar& grammar, Packer& out) {
  auto rules = std::make_shared<xgrammar::Grammar::Impl>(*grammar.ImplPtr());
  rules->per_rule_fsms.clear();
  rules->optimized = false;
  const std::string text = xgrammar::Grammar(std::move(rules)).SerializeJSON();
  out.add(text.data(), text.size());
  const uint8_t optimized = grammar->optimized ? 1 : 0;
  out.add(&optimized, 1);
  const size_t num_rules = grammar->per_rule_fsms.size();
  out.add(&num_rules, 1);
  for (const auto& part : grammar->per_rule_fsms) {
    const uint8_t exists = part.has_value() ? 1 : 0;
    out.add(&exists, 1);
    if (exists == 0) continue;
    const int numbers[] = {part->GetFsm().GetStart(), part->GetEdgeNum(), part->GetNodeNum()};
    out.add(numbers, 3);
    out.add(part->GetFsm().GetEnds().data(), part->GetFsm().GetEnds().size());
  }
}

xgrammar::Grammar unpack_rules(Unpacker& in) {
  const std::vector<char> text = in.list<char>();
  auto read = xgrammar::Grammar::DeserializeJSON(std::string(text.begin(), text.end()));
  if (const auto* error = std::get_if<xgrammar::SerializationError>(&read))
    throw std::runtime_error(std::visit([](const auto& one) { return std::string(one.what()); }, *error));
  auto grammar = std::get<xgrammar::Grammar>(std::move(read));
  grammar->optimized = in.one<uint8_t>() != 0;
  grammar->per_rule_fsms.resize(in.one<size_t>());
  for (auto& part : grammar->per_rule_fsms) {
    if (in.one<uint8_t>() == 0) continue;
    const std::vector<int> numbers = in.list<int>();
    if (numbers.size() != 3) throw std::runtime_error("a packed grammar is damaged");
    const xgrammar::CompactFSMWithStartEnd fsm(grammar->complete_fsm, numbers[0], in.list<int32_t>());
    part.emplace(fsm, numbers[1], numbers[2]);
  }
  return grammar;
}

}  // namespace

std::string pack_grammar(const xgrammar::CompiledGrammar& grammar) {
  Packer out;
  pack_rules(grammar.GetGrammar(), out);
  for (const auto& [state, mask] : grammar->adaptive_token_mask_cache) {
    out.add(&state, 1);
    out.add(&mask.store_type, 1);
    out.add(mask.accepted_indices.data(), mask.accepted_indices.size());
    out.add(mask.rejected_indices.data(), mask.rejected_indices.size());
    out.add(mask.uncertain_indices.data(), mask.uncertain_indices.size());
    const int num_bits = mask.accepted_bitset.Size();
    std::vector<uint32_t> words(static_cast<size_t>(xgrammar::DynamicBitset::GetBufferSize(num_bits)));
    if (num_bits > 0) xgrammar::DynamicBitset(num_bits, words.data()) = mask.accepted_bitset;
    out.add(&num_bits, 1);
    out.add(words.data(), words.size());
  }
  return out.take();
}

xgrammar::CompiledGrammar unpack_grammar(std::string_view bytes, const xgrammar::TokenizerInfo& vocabulary) {
  Unpacker in(bytes);
  auto impl = std::make_shared<xgrammar::CompiledGrammar::Impl>();
  impl->grammar = unpack_rules(in);
  impl->tokenizer_info = vocabulary;
  while (!in.done()) {
    const auto state = in.one<xgrammar::ParserState>();
    xgrammar::AdaptiveTokenMask mask;
    mask.store_type = in.one<xgrammar::AdaptiveTokenMask::StoreType>();
    mask.accepted_indices = in.list<int32_t>();
    mask.rejected_indices = in.list<int32_t>();
    mask.uncertain_indices = in.list<int32_t>();
    const int num_bits = in.one<int>();
    std::vector<uint32_t> words = in.list<uint32_t>();
    if (num_bits < 0 || words.size() != static_cast<size_t>(xgrammar::DynamicBitset::GetBufferSize(num_bits)))
      throw std::runtime_error("a packed grammar is damaged");
    if (num_bits > 0) {
      mask.accepted_bitset = xgrammar::DynamicBitset(num_bits);
      mask.accepted_bitset |= xgrammar::DynamicBitset(num_bits, words.data());
    }
    impl->adaptive_token_mask_cache.emplace(state, std::move(mask));
  }
  return xgrammar::CompiledGrammar(std::move(impl));
}

}  // namespace deepinfer
