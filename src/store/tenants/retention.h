// What a block was promised when it was stored.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace deepinfer::store {

// Decides its time to live and who is dropped first.
enum class RetentionClass : uint8_t { kGuaranteed = 0, kAgent = 1, kPublic = 2, kBestEffort = 3 };
inline constexpr size_t kNumClasses = 4;
std::string_view class_name(RetentionClass retention);

}  // namespace deepinfer::store
