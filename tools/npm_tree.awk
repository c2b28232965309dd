# Lines "FOLDER VERSION INTEGRITY" to what npm ci wants: -v what=manifest prints package.json, -v what=lock the
# package-lock.json. Every package that lies at the top is asked for by name, so that the tree is exactly the lines.
function json(text) { return "\"" text "\"" }
{
  version = $2
  alias = ""
  if (match(version, /^npm:.*@/)) {  # npm:NAME@VERSION: under a folder of another name
    alias = "\"name\": " json(substr(version, 5, RLENGTH - 5)) ", "
    version = substr(version, RLENGTH + 1)
  }
  entry = "{" alias "\"version\": " json(version) ", \"integrity\": " json($3) "}"
  entries = entries (NR > 1 ? ",\n" : "") "    " json($1) ": " entry
  name = substr($1, length("node_modules/") + 1)
  if (name !~ /node_modules\//) asked = asked (asked ? ", " : "") json(name) ": " json($2)
}
END {
  if (what == "manifest") printf "{\"private\": true, \"dependencies\": {%s}}\n", asked
  else printf "{\n  \"lockfileVersion\": 3,\n  \"packages\": {\n    \"\": {\"dependencies\": {%s}},\n%s\n  }\n}\n", asked, entries
}
