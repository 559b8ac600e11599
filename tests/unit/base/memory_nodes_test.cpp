#include "base/memory_nodes.h"

#include <gmock/gmock.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>

#include "support/folder.h"

namespace nibble {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;
using testing_support::TemporaryFolder;
using testing_support::write_file;

std::vector<std::pair<int, int>> pairs(const std::vector<WorkerPlace>& places) {
  std::vector<std::pair<int, int>> out;
  out.reserve(places.size());
  for (const WorkerPlace& place : places) {
    out.emplace_back(place.node, place.processor);
  }
  return out;
}

TEST(ProcessorList, IsReadAsTheKernelWritesIt) {
  EXPECT_THAT(*parse_processor_list("0"), ElementsAre(0));
  EXPECT_THAT(*parse_processor_list("0-3,8,10-11"), ElementsAre(0, 1, 2, 3, 8, 10, 11));
  EXPECT_THAT(*parse_processor_list(""), IsEmpty());
  for (const char* wrong : {"a", "1-", "-1", "3-1", "1,", ",1", "1 ", "0-99999999", "1-2-3"}) {
    EXPECT_FALSE(parse_processor_list(wrong)) << wrong;
  }
}

// As on a machine with two sockets, the second node without processors, the third offline.
TEST(MemoryNodes, AreReadFromSysfs) {
  const TemporaryFolder root;
  write_file(root / "online", "0-1,4\n");
  for (const auto& [node, list] : std::vector<std::pair<const char*, const char*>>{
           {"node0", "0-1,4-5\n"}, {"node1", "\n"}, {"node3", "9\n"}, {"node4", "2-3\n"}}) {
    std::filesystem::create_directory(root / node);
    write_file(root / node + "/cpulist", list);
  }
  const std::vector<MemoryNode> nodes = memory_nodes(root.path());
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].id, 0);
  EXPECT_THAT(nodes[0].processors, ElementsAre(0, 1, 4, 5));
  EXPECT_EQ(nodes[1].id, 4);
  EXPECT_THAT(nodes[1].processors, ElementsAre(2, 3));
}

TEST(MemoryNodes, AreNoneWhereTheSystemDoesNotSay) {
  const TemporaryFolder root;
  EXPECT_THAT(memory_nodes(root / "none"), IsEmpty());
  write_file(root / "online", "nonsense\n");
  EXPECT_THAT(memory_nodes(root.path()), IsEmpty());
  write_file(root / "online", "0\n");  // a node without its list
  EXPECT_THAT(memory_nodes(root.path()), IsEmpty());
}

TEST(PlaceWorkers, TakesTheFirstProcessorsOfOneNode) {
  const std::vector<int> allowed = {1, 2, 5, 7};
  const std::vector<MemoryNode> one = {{0, {0, 1, 2, 3, 4, 5, 6, 7}}};
  EXPECT_THAT(pairs(place_workers(allowed, one, 3)),
              ElementsAre(std::pair(0, 1), std::pair(0, 2), std::pair(0, 5)));
  EXPECT_THAT(pairs(place_workers(allowed, {}, 2)), ElementsAre(std::pair(0, 1), std::pair(0, 2)));
  EXPECT_THAT(place_workers(allowed, one, 5), IsEmpty());
}

// Processors of two sockets are often numbered in turn.
TEST(PlaceWorkers, GoesNodeByNodeAndGivesEachItsPart) {
  const std::vector<MemoryNode> two = {{0, {0, 2, 4, 6}}, {1, {1, 3, 5, 7}}};
  const std::vector<int> all = {0, 1, 2, 3, 4, 5, 6, 7};
  EXPECT_THAT(pairs(place_workers(all, two, 8)),
              ElementsAre(std::pair(0, 0), std::pair(0, 2), std::pair(0, 4), std::pair(0, 6),
                          std::pair(1, 1), std::pair(1, 3), std::pair(1, 5), std::pair(1, 7)));
  EXPECT_THAT(pairs(place_workers(all, two, 2)), ElementsAre(std::pair(0, 0), std::pair(1, 1)));
  EXPECT_THAT(pairs(place_workers(all, two, 3)),
              ElementsAre(std::pair(0, 0), std::pair(0, 2), std::pair(1, 1)));
  const std::vector<int> three_and_one = {0, 2, 3, 4};  // the mask leaves one of the second node
  EXPECT_THAT(pairs(place_workers(three_and_one, two, 3)),
              ElementsAre(std::pair(0, 0), std::pair(0, 2), std::pair(1, 3)));
  EXPECT_THAT(pairs(place_workers(three_and_one, two, 4)),
              ElementsAre(std::pair(0, 0), std::pair(0, 2), std::pair(0, 4), std::pair(1, 3)));
}

// Only the first node is sure to be there: pages of memory and of a file come to it or stay.
TEST(BringToNode, CountsThePagesThatAreThere) {
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  constexpr std::size_t kPages = 5000;  // more than one call takes
  void* const memory =
      mmap(nullptr, kPages * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(memory, MAP_FAILED);
  auto* const bytes = static_cast<std::byte*>(memory);
  std::memset(bytes, 7, kPages * page);
  const std::int64_t found = bring_to_node(bytes, static_cast<std::int64_t>(kPages * page), 0);
  if (found == 0) {
    munmap(memory, kPages * page);
    GTEST_SKIP() << "the system forbids move_pages";
  }
  EXPECT_EQ(found, static_cast<std::int64_t>(kPages));
  // A page belongs to the range in which it begins.
  EXPECT_EQ(bring_to_node(bytes + 1, static_cast<std::int64_t>(2 * page), 0), 2);
  EXPECT_EQ(bring_to_node(bytes, static_cast<std::int64_t>(2 * page), 0), 2);
  EXPECT_EQ(bring_to_node(bytes + 1, static_cast<std::int64_t>(page) - 1, 0), 0);
  EXPECT_EQ(bring_to_node(bytes, static_cast<std::int64_t>(page), 1000), 0);
  for (std::size_t i = 0; i < kPages * page; i += page) {
    ASSERT_EQ(bytes[i], std::byte{7});
  }
  munmap(memory, kPages * page);
}

}  // namespace
}  // namespace nibble
