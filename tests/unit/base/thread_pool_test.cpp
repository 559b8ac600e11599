#include "base/thread_pool.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

namespace nibble {
namespace {

TEST(SplitRange, CoversEveryItemOnceInOrder) {
  for (const int parts : {1, 2, 3, 7, 16}) {
    for (const std::int64_t count : {0, 1, 2, 31, 32, 33, 2880}) {
      for (const std::int64_t grain : {1, 4, 32}) {
        std::int64_t next = 0;
        for (int index = 0; index < parts; ++index) {
          const Range range = split_range(count, parts, index, grain);
          EXPECT_EQ(range.begin, next);
          EXPECT_TRUE(range.begin % grain == 0 || range.begin == count);
          next = range.end;
        }
        EXPECT_EQ(next, count);
      }
    }
  }
}

TEST(ThreadPool, RunsEachWorkerOncePerPhase) {
  for (const int size : {1, 2, 5}) {
    ThreadPool pool(size);
    std::vector<int> calls(size, 0);
    for (int phase = 0; phase < 1000; ++phase) {
      pool.run([&](int worker) { ++calls[worker]; });
    }
    EXPECT_EQ(calls, std::vector<int>(size, 1000));
  }
}

TEST(ThreadPool, PhaseSeesWritesOfThePhaseBefore) {
  ThreadPool pool(4);
  std::vector<int> values(4, 0);
  std::atomic<int> wrong{0};
  for (int phase = 1; phase < 500; ++phase) {
    pool.run([&](int worker) { values[worker] = phase; });
    pool.run([&](int worker) { wrong += values[(worker + 1) % 4] != phase; });
  }
  EXPECT_EQ(wrong, 0);
}

TEST(ThreadPool, WakesSleepingWorkers) {
  ThreadPool pool(3);
  std::atomic<int> calls{0};
  for (int phase = 0; phase < 3; ++phase) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    pool.run([&](int) { ++calls; });
  }
  EXPECT_EQ(calls, 9);
}

// What the machine has is not known here: its own processors serve as two nodes.
TEST(ThreadPool, PinsItsWorkersNodeByNode) {
  const std::vector<int> allowed = ThreadPool(2, {}).processors();
  if (allowed.size() < 2) {
    GTEST_SKIP() << "wants two processors, found " << allowed.size();
  }
  ThreadPool pool(2, {{3, {allowed[1]}}, {5, {allowed[0]}}});
  EXPECT_TRUE(pool.has_several_nodes());
  EXPECT_EQ(pool.node_of(0), 3);
  EXPECT_EQ(pool.node_of(1), 5);
  std::atomic<int> other{-1};
  while (other < 0) {  // until the second worker does a part itself
    pool.run([&, caller = std::this_thread::get_id()](int /*worker*/) {
      cpu_set_t own;
      if (std::this_thread::get_id() != caller && sched_getaffinity(0, sizeof(own), &own) == 0) {
        other = CPU_COUNT(&own) == 1 && CPU_ISSET(allowed[0], &own) ? allowed[0] : CPU_SETSIZE;
      }
    });
  }
  EXPECT_EQ(other, allowed[0]);
  EXPECT_FALSE(ThreadPool(2, {{3, allowed}}).has_several_nodes());
  EXPECT_EQ(ThreadPool(1, {}).node_of(0), 0);
}

// A sleeping worker takes microseconds to wake, an empty part nanoseconds.
TEST(ThreadPool, TakesOverThePartsOfALateWorker) {
  ThreadPool pool(3);
  std::vector<int> taken_over(pool.size(), 0);
  for (int phase = 0; phase < 50; ++phase) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    pool.run([&, caller = std::this_thread::get_id()](int worker) {
      taken_over[worker] += worker != 0 && std::this_thread::get_id() == caller ? 1 : 0;
    });
  }
  EXPECT_GT(taken_over[1] + taken_over[2], 0);
}

}  // namespace
}  // namespace nibble
