// The names of the tables that select_ops (ops.h) knows: what tests, help and messages list.
#pragma once

#include <string>
#include <vector>

namespace deepinfer {

// The best first, "ref" last. kBuilt: those that this architecture can have, whatever its processor has of them.
enum class TableSet { kAll, kBuilt };
std::vector<std::string> table_names(TableSet set = TableSet::kAll);

}  // namespace deepinfer
