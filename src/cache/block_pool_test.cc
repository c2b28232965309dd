#include "cache/block_pool.h"

#include <gtest/gtest.h>

namespace deepinfer {
namespace {

TEST(BlockPoolTest, SharedBlockIsFreedWhenTheLastUserLetsGo) {
  BlockPool pool(2);
  const BlockId block = *pool.allocate();
  pool.add_ref(block);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 1);
  pool.release(block);
  EXPECT_EQ(pool.num_free(), 2);
}

TEST(BlockPoolTest, AnEmptyPoolSaysSo) {
  BlockPool pool(1);
  ASSERT_TRUE(pool.allocate().ok());
  const auto none = pool.allocate();
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code(), Code::kResourceExhausted);
}

TEST(BlockPoolTest, BlocksAreDistinctAndLowIdsComeFirst) {
  BlockPool pool(3);
  for (int32_t expected = 0; expected < 3; ++expected) EXPECT_EQ(*pool.allocate(), BlockId{expected});
}

}  // namespace
}  // namespace deepinfer
