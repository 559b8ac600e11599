// Memory nodes (NUMA): which processors are near which memory, and pages brought to a node.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace nibble {

struct MemoryNode {
  int id = 0;
  std::vector<int> processors;  // ascending, at least one
};

// "0-3,8" as the kernel writes processors; nothing for any other text. An empty list is one.
std::optional<std::vector<int>> parse_processor_list(std::string_view text);

// Nodes that have processors, ascending by id. Empty where the system does not say.
std::vector<MemoryNode> memory_nodes(const std::string& root = "/sys/devices/system/node");

struct WorkerPlace {
  int processor = 0;
  int node = 0;  // 0 where no node has the processor
};

// Where `num_workers` workers run: each on a processor of `allowed` of its own. On one node the
// first ones of `allowed`. On several, workers stand node by node, as many on each as its part of
// `allowed`. Empty when there are fewer processors than workers.
std::vector<WorkerPlace> place_workers(std::span<const int> allowed,
                                       std::span<const MemoryNode> nodes, int num_workers);

// Reads a byte of each page that begins within the range and moves those that lie elsewhere to
// `node`, mapped pages of files too. Returns how many pages are there then: a page that other
// processes map as well stays where it is, and so do all where the system forbids the call.
std::int64_t bring_to_node(const std::byte* begin, std::int64_t bytes, int node);

}  // namespace nibble
