// Which prefixes are found, and which pages go when others are needed.
#include "engine/paged_cache.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <numeric>

namespace nibble::engine {
namespace {

using model::CacheGroup;

constexpr int kFull = static_cast<int>(CacheGroup::kFull);
constexpr int kWindow = static_cast<int>(CacheGroup::kWindow);

std::vector<std::int32_t> ids(std::int32_t count, std::int32_t first = 0) {
  std::vector<std::int32_t> out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), first);
  return out;
}

// `shared` ids of ids(), then others up to `count`.
std::vector<std::int32_t> parting(std::int32_t shared, std::int32_t count) {
  std::vector<std::int32_t> out = ids(count, 1000);
  std::iota(out.begin(), out.begin() + shared, 0);
  return out;
}

struct TestCache {
  explicit TestCache(const CacheLimits& limits) : page_size(limits.page_size), cache(limits) {}

  // Computes all ids, a page at a time, and leaves.
  void compute(const std::vector<std::int32_t>& prompt) {
    Sequence sequence{.ids = prompt};
    run(sequence);
    cache.release(sequence);
  }
  void run(Sequence& sequence) {
    cache.attach(sequence);
    while (sequence.num_remaining() > 0) {
      const std::int32_t next = std::min(sequence.num_computed + page_size, sequence.num_ids());
      ASSERT_TRUE(cache.reserve(sequence, next));
      sequence.num_computed = next;
      cache.publish(sequence);
      cache.drop_outside_window(sequence);
    }
  }
  // Tokens that a sequence would not compute. Makes what it finds the most recent.
  std::int32_t hits(const std::vector<std::int32_t>& prompt) {
    Sequence sequence{.ids = prompt};
    cache.attach(sequence);
    const std::int32_t found = sequence.num_computed;
    cache.release(sequence);
    return found;
  }
  // Needs pages of one group beyond the free ones, so that `count` are evicted; then frees them.
  void evict(CacheGroup group, std::int32_t count) {
    const std::int64_t before = cache.num_evicted(group);
    const std::int32_t pages = cache.pool(group).num_free() + count;
    Sequence taker;
    taker.tables[1 - static_cast<int>(group)].first_page = pages;  // wants none of the other
    ASSERT_TRUE(cache.reserve(taker, pages * page_size));
    EXPECT_EQ(cache.num_evicted(group) - before, count);
    cache.discard(taker);
  }

  std::int32_t page_size;
  PagedCache cache;
};

CacheLimits limits(std::int32_t page_size, std::int32_t window) {
  return {.page_size = page_size, .window = window, .num_pages = {40, 40}, .shares_prefixes = true};
}

TEST(PagedCache, OneTokenIsAlwaysComputed) {
  for (const auto& [length, found] : {std::pair{15, 0}, {16, 0}, {17, 16}, {32, 16}, {33, 32}}) {
    TestCache test(limits(16, 40));
    EXPECT_EQ(test.hits(ids(length)), 0);
    test.compute(ids(length));
    EXPECT_EQ(test.hits(ids(length)), found) << length;
  }
}

TEST(PagedCache, FindsWholePagesOfWhatIsShared) {
  TestCache test(limits(64, 128));
  test.compute(ids(300));
  EXPECT_EQ(test.hits(parting(192, 300)), 192);
  EXPECT_EQ(test.hits(parting(191, 300)), 128);
  EXPECT_EQ(test.hits(parting(255, 300)), 192);
  EXPECT_EQ(test.hits(parting(0, 300)), 0);
  EXPECT_EQ(test.hits(ids(300)), 256);
  EXPECT_EQ(test.hits(ids(1000)), 256) << "the last page was not whole";
}

// One id that differs, anywhere, hides its page and all after it; equal pages after another
// beginning are other pages.
TEST(PagedCache, OnlyEqualTokensAreShared) {
  TestCache test(limits(4, 6));
  test.compute(ids(24));
  for (std::int32_t at = 0; at < 24; ++at) {
    std::vector<std::int32_t> other = ids(25);
    other[static_cast<std::size_t>(at)] += 1;
    EXPECT_EQ(test.hits(other), at / 4 * 4) << at;
  }
  std::vector<std::int32_t> shifted = ids(21, 4);
  EXPECT_EQ(test.hits(shifted), 0) << "pages 1 to 5 as a prompt of their own";
}

TEST(PagedCache, SequencesShareThePagesThemselves) {
  TestCache test(limits(4, 6));
  test.compute(ids(20));
  Sequence a{.ids = ids(20)};
  Sequence b{.ids = parting(12, 20)};
  test.cache.attach(a);
  test.cache.attach(b);
  EXPECT_EQ(a.num_computed, 16);
  EXPECT_EQ(b.num_computed, 12);
  for (std::size_t page = 0; page < 3; ++page) {
    EXPECT_EQ(a.tables[kFull].pages[page], b.tables[kFull].pages[page]);
    EXPECT_EQ(a.prefix[page]->slots[kFull].num_users, 2);
  }
  // The row at 16 sees 11 to 15, pages 2 and 3; the row at 12 sees 7 to 11, pages 1 and 2.
  EXPECT_EQ(a.tables[kWindow].first_page, 2);
  EXPECT_EQ(b.tables[kWindow].first_page, 1);
  EXPECT_EQ(a.tables[kWindow].pages[0], b.tables[kWindow].pages[1]);
  EXPECT_EQ(test.cache.num_available(CacheGroup::kFull), 36);
  test.cache.release(a);
  test.cache.release(b);
  EXPECT_EQ(test.cache.num_available(CacheGroup::kFull), 40);
  EXPECT_EQ(test.cache.tree().num_idle(CacheGroup::kFull), 5);
}

// Two that computed the same at the same time end up with one copy.
TEST(PagedCache, TwinsKeepOneCopy) {
  TestCache test(limits(4, 100));
  Sequence a{.ids = ids(9)};
  Sequence b{.ids = ids(9)};
  for (Sequence* sequence : {&a, &b}) {
    ASSERT_TRUE(test.cache.reserve(*sequence, 9));
    sequence->num_computed = 9;
  }
  EXPECT_EQ(test.cache.pool(CacheGroup::kFull).num_free(), 34);
  test.cache.publish(a);
  test.cache.publish(b);
  EXPECT_EQ(test.cache.pool(CacheGroup::kFull).num_free(), 36);
  EXPECT_EQ(a.tables[kWindow].pages[1], b.tables[kWindow].pages[1]);
  EXPECT_NE(a.tables[kFull].pages[2], b.tables[kFull].pages[2]) << "not whole";
  test.cache.release(a);
  test.cache.release(b);
  EXPECT_EQ(test.cache.pool(CacheGroup::kFull).num_free(), 38);
}

TEST(PagedCache, EvictsFromTheEndOfWhatWasLeftLongestAgo) {
  TestCache test(limits(4, 100));
  test.compute(ids(17));
  test.compute(ids(17, 500));
  EXPECT_EQ(test.hits(ids(17)), 16);  // now the more recent one
  test.evict(CacheGroup::kFull, 1);
  EXPECT_EQ(test.hits(ids(17, 500)), 12);  // and now this one
  test.evict(CacheGroup::kFull, 5);
  EXPECT_EQ(test.hits(ids(17)), 0);
  EXPECT_EQ(test.hits(ids(17, 500)), 8);
}

TEST(PagedCache, NothingCountsBehindAnEvictedPage) {
  TestCache test(limits(4, 100));
  test.compute(ids(17));
  EXPECT_EQ(test.hits(parting(4, 17)), 4);  // page 0 is the most recent: 3, 2, 1 go before it
  test.evict(CacheGroup::kFull, 3);
  EXPECT_EQ(test.hits(ids(17)), 4);
  test.evict(CacheGroup::kFull, 1);
  EXPECT_EQ(test.hits(ids(17)), 0);
}

// Window of 6 and pages of 4: going on at 16 needs window pages 2 and 3, at 12 1 and 2, at 8 and at
// 4 page 0 (and 1).
TEST(PagedCache, APrefixNeedsTheLastWindowOfTheWindowGroup) {
  TestCache test(limits(4, 6));
  test.compute(ids(17));
  test.evict(CacheGroup::kWindow, 1);  // page 0
  EXPECT_EQ(test.hits(parting(8, 17)), 0) << "a hole is no hit";
  EXPECT_EQ(test.hits(parting(12, 17)), 12);  // pages 1 and 2 become the most recent
  test.evict(CacheGroup::kWindow, 1);         // page 3
  EXPECT_EQ(test.hits(ids(17)), 12) << "a shorter prefix, whose window is whole";
  test.evict(CacheGroup::kWindow, 1);  // page 1
  EXPECT_EQ(test.hits(ids(17)), 0);
  EXPECT_EQ(test.cache.tree().num_nodes(), 4) << "the full group kept all";
  test.compute(ids(17));
  EXPECT_EQ(test.hits(ids(17)), 16) << "computing again fills the holes";
  EXPECT_EQ(test.hits(parting(8, 17)), 8);
}

TEST(PagedCache, PagesInUseStay) {
  CacheLimits small = limits(4, 100);
  small.num_pages[0] = small.num_pages[1] = 6;
  TestCache test(small);
  Sequence user{.ids = ids(17)};
  test.run(user);
  Sequence other{.ids = ids(9, 500)};
  EXPECT_FALSE(test.cache.reserve(other, 9)) << "five of six pages are in use";
  EXPECT_EQ(test.cache.num_available(CacheGroup::kFull), 1);
  test.cache.release(user);
  EXPECT_TRUE(test.cache.reserve(other, 9));
  test.cache.release(other);
}

TEST(PagedCache, WhatIsDiscardedIsNotFound) {
  TestCache test(limits(4, 100));
  test.compute(ids(9));
  Sequence failed{.ids = ids(17)};
  test.run(failed);
  EXPECT_EQ(test.cache.tree().num_nodes(), 4);
  test.cache.discard(failed);
  EXPECT_EQ(test.hits(ids(17)), 8) << "what it found had been computed by another";
  EXPECT_EQ(test.cache.tree().num_nodes(), 2);
  Sequence first{.ids = ids(17)};
  Sequence second{.ids = ids(17)};
  test.run(first);
  test.cache.attach(second);
  test.cache.discard(first);
  EXPECT_EQ(test.cache.tree().num_nodes(), 4) << "another one uses them";
  test.cache.release(second);
}

// Rows whose logits are wanted must be computed; those reported before a preemption need not.
TEST(PagedCache, PromptLogitsThatAreStillWantedAreComputed) {
  TestCache test(limits(4, 6));
  test.compute(ids(17));
  for (const auto& [scored, found] : {std::pair{0, 0}, {3, 0}, {4, 4}, {15, 12}, {17, 16}}) {
    Sequence sequence{.ids = ids(17), .num_scored = scored};
    sequence.request.on_prompt_logits = [](auto, auto) {};
    test.cache.attach(sequence);
    EXPECT_EQ(sequence.num_computed, found) << scored;
    test.cache.release(sequence);
  }
}

TEST(PagedCache, SwitchedOffItKeepsNothing) {
  CacheLimits off = limits(4, 6);
  off.shares_prefixes = false;
  TestCache test(off);
  test.compute(ids(17));
  EXPECT_EQ(test.hits(ids(17)), 0);
  EXPECT_EQ(test.cache.pool(CacheGroup::kFull).num_free(), 40);
  EXPECT_EQ(test.cache.pool(CacheGroup::kWindow).num_free(), 40);
}

}  // namespace
}  // namespace nibble::engine
