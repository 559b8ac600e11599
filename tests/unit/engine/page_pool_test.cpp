#include "engine/page_pool.h"

#include <gtest/gtest.h>

#include <set>

namespace nibble::engine {
namespace {

TEST(PagePool, GivesEachPageOnceAndTakesItBack) {
  PagePool pool(5);
  EXPECT_EQ(pool.num_pages(), 5);
  std::set<std::int32_t> taken;
  while (pool.num_free() > 0) {
    taken.insert(pool.take());
  }
  EXPECT_EQ(taken, (std::set<std::int32_t>{0, 1, 2, 3, 4}));
  for (const std::int32_t page : taken) {
    pool.give_back(page);
  }
  EXPECT_EQ(pool.num_free(), 5);
}

TEST(PagePool, GivesThePageThatWasFreedLast) {
  PagePool pool(3);
  const std::int32_t first = pool.take();
  pool.take();
  pool.give_back(first);
  EXPECT_EQ(pool.take(), first);
}

TEST(PagePoolDeathTest, StopsOnAPageThatIsNotTaken) {
  EXPECT_DEATH(PagePool(3).give_back(1), "is_taken");
  EXPECT_DEATH(PagePool(3).give_back(3), "3");
  EXPECT_DEATH(PagePool(0).take(), "empty");
}

}  // namespace
}  // namespace nibble::engine
