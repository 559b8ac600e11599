#include "base/memory_nodes.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <fstream>
#include <map>
#include <utility>

namespace nibble {
namespace {

constexpr int kMostProcessors = 1 << 16;  // of a list: more is a fault of the text

std::optional<int> take_number(std::string_view& text) {
  int value = 0;
  const auto [end, fault] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (fault != std::errc() || value < 0 || value >= kMostProcessors) {
    return std::nullopt;
  }
  text.remove_prefix(static_cast<std::size_t>(end - text.data()));
  return value;
}

bool take(std::string_view& text, char wanted) {
  if (text.empty() || text.front() != wanted) {
    return false;
  }
  text.remove_prefix(1);
  return true;
}

std::optional<std::vector<int>> list_in(const std::string& path) {
  std::ifstream file(path);
  std::string line;
  if (!std::getline(file, line) && !file.eof()) {
    return std::nullopt;
  }
  return parse_processor_list(line);
}

// How many of `num_workers` go to each group: its part, rounded down, and one more for those that
// lost most by it.
std::vector<std::size_t> counts_of(const std::vector<std::size_t>& sizes, std::size_t num_workers) {
  std::size_t total = 0;
  for (const std::size_t size : sizes) {
    total += size;
  }
  std::vector<std::size_t> counts(sizes.size());
  std::vector<std::pair<std::size_t, std::size_t>> lost;  // negated remainder, group
  std::size_t left = num_workers;
  for (std::size_t i = 0; i < sizes.size(); ++i) {
    counts[i] = sizes[i] * num_workers / total;
    left -= counts[i];
    lost.emplace_back(total - sizes[i] * num_workers % total, i);
  }
  std::sort(lost.begin(), lost.end());
  for (std::size_t i = 0; i < left; ++i) {
    ++counts[lost[i].second];
  }
  return counts;
}

}  // namespace

std::optional<std::vector<int>> parse_processor_list(std::string_view text) {
  std::vector<int> out;
  if (text.empty()) {
    return out;
  }
  do {
    const std::optional<int> first = take_number(text);
    const std::optional<int> last = first && take(text, '-') ? take_number(text) : first;
    if (!first || !last || *last < *first) {
      return std::nullopt;
    }
    for (int processor = *first; processor <= *last; ++processor) {
      out.push_back(processor);
    }
  } while (take(text, ','));
  return text.empty() ? std::optional(out) : std::nullopt;
}

std::vector<MemoryNode> memory_nodes(const std::string& root) {
  std::vector<MemoryNode> out;
  for (const int id : list_in(root + "/online").value_or(std::vector<int>())) {
    const auto processors = list_in(root + "/node" + std::to_string(id) + "/cpulist");
    if (processors && !processors->empty()) {
      out.push_back({id, *processors});
    }
  }
  return out;
}

std::vector<WorkerPlace> place_workers(std::span<const int> allowed,
                                       std::span<const MemoryNode> nodes, int num_workers) {
  std::vector<WorkerPlace> out;
  const auto wanted = static_cast<std::size_t>(num_workers);
  if (allowed.size() < wanted) {
    return out;
  }
  std::map<int, std::vector<int>> groups;
  for (const int processor : allowed) {
    const auto node = std::find_if(nodes.begin(), nodes.end(), [&](const MemoryNode& each) {
      return std::binary_search(each.processors.begin(), each.processors.end(), processor);
    });
    groups[node == nodes.end() ? 0 : node->id].push_back(processor);
  }
  std::vector<std::size_t> sizes;
  sizes.reserve(groups.size());
  for (const auto& [node, processors] : groups) {
    sizes.push_back(processors.size());
  }
  const std::vector<std::size_t> counts = counts_of(sizes, wanted);
  std::size_t group = 0;
  for (const auto& [node, processors] : groups) {
    for (std::size_t i = 0; i < counts[group]; ++i) {
      out.push_back({processors[i], node});
    }
    ++group;
  }
  return out;
}

std::int64_t bring_to_node(const std::byte* begin, std::int64_t bytes, int node) {
  constexpr std::size_t kPagesAtOnce = 4096;
  constexpr int kMoveOwn = 2;  // MPOL_MF_MOVE: pages that only this process maps
  const auto page = static_cast<std::int64_t>(::sysconf(_SC_PAGESIZE));
  const auto in_page = static_cast<std::int64_t>(reinterpret_cast<std::uintptr_t>(begin) %
                                                 static_cast<std::uintptr_t>(page));
  std::vector<void*> pages;
  std::int64_t num_there = 0;
  for (std::int64_t at = (page - in_page) % page; at < bytes; at += page) {
    (void)*static_cast<const volatile std::byte*>(begin + at);  // it must be mapped to be moved
    pages.push_back(const_cast<std::byte*>(begin + at));
    if (pages.size() < kPagesAtOnce && at + page < bytes) {
      continue;
    }
    const std::vector<int> targets(pages.size(), node);
    std::vector<int> found(pages.size(), -1);
    if (::syscall(SYS_move_pages, 0, pages.size(), pages.data(), targets.data(), found.data(),
                  kMoveOwn) >= 0) {
      num_there += std::count(found.begin(), found.end(), node);
    }
    pages.clear();
  }
  return num_there;
}

}  // namespace nibble
