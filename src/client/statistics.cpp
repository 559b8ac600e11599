#include "client/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nibble::client {
namespace {

double tpot_of(const RequestRecord& record) {
  return record.output_len > 1 ? (record.latency - record.ttft) / (record.output_len - 1) : 0.0;
}

bool is_good(const RequestRecord& record, const Goodput& goodput) {
  const auto keeps = [](const std::optional<double>& limit_ms, double seconds) {
    return !limit_ms || seconds <= *limit_ms / 1e3;
  };
  return keeps(goodput.ttft_ms, record.ttft) && keeps(goodput.tpot_ms, tpot_of(record)) &&
         keeps(goodput.e2el_ms, record.latency);
}

// Times of the chunks that held tokens, counted by whole seconds from the first request on.
double peak_tokens(const std::vector<RequestRecord>& records, double begin) {
  std::vector<double> counts;
  const auto count = [&](double time) {
    const auto second = static_cast<std::size_t>(std::max(time - begin, 0.0));
    counts.resize(std::max(counts.size(), second + 1));
    ++counts[second];
  };
  for (const RequestRecord& record : records) {
    if (record.is_success) {
      double time = record.start + record.ttft;
      count(time);
      for (const double gap : record.itls) {
        count(time += gap);
      }
    }
  }
  return counts.empty() ? 0.0 : *std::max_element(counts.begin(), counts.end());
}

// Of intervals that include their begin and not their end.
std::int32_t peak_concurrency(const std::vector<RequestRecord>& records) {
  std::vector<std::pair<double, std::int32_t>> events;
  for (const RequestRecord& record : records) {
    if (record.is_success) {
      events.emplace_back(record.start, 1);
      events.emplace_back(record.start + record.latency, -1);
    }
  }
  std::sort(events.begin(), events.end());
  std::int32_t running = 0;
  std::int32_t peak = 0;
  for (const auto& [time, change] : events) {
    running += change;
    peak = std::max(peak, running);
  }
  return peak;
}

double sum_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

}  // namespace

double percentile(std::vector<double> values, double p) {
  if (values.empty()) {
    return 0.0;
  }
  std::sort(values.begin(), values.end());
  const double rank = p / 100.0 * static_cast<double>(values.size() - 1);
  const auto low = static_cast<std::size_t>(rank);
  const std::size_t high = std::min(low + 1, values.size() - 1);
  return values[low] + (rank - static_cast<double>(low)) * (values[high] - values[low]);
}

Summary summarise(const std::vector<double>& seconds, const std::vector<double>& percentiles) {
  Summary summary;
  const auto count = static_cast<double>(std::max<std::size_t>(seconds.size(), 1));
  const double mean = sum_of(seconds) / count;
  double squares = 0.0;
  for (const double value : seconds) {
    squares += (value - mean) * (value - mean);
  }
  summary.mean_ms = 1e3 * mean;
  summary.median_ms = 1e3 * percentile(seconds, 50.0);
  summary.std_ms = 1e3 * std::sqrt(squares / count);
  for (const double p : percentiles) {
    summary.percentiles_ms.emplace_back(p, 1e3 * percentile(seconds, p));
  }
  return summary;
}

LoadReport report_of(const std::vector<RequestRecord>& records, double duration_s,
                     const std::vector<double>& percentiles, const Goodput& goodput) {
  LoadReport report{.duration_s = duration_s};
  std::vector<double> ttfts;
  std::vector<double> tpots;
  std::vector<double> itls;
  std::vector<double> latencies;
  double begin = 0.0;
  std::int32_t good = 0;
  for (const RequestRecord& record : records) {
    if (!record.is_success) {
      ++report.failed;
      continue;
    }
    begin = report.completed == 0 ? record.start : std::min(begin, record.start);
    ++report.completed;
    report.total_input_tokens += record.input_len;
    report.total_output_tokens += record.output_len;
    ttfts.push_back(record.ttft);
    latencies.push_back(record.latency);
    itls.insert(itls.end(), record.itls.begin(), record.itls.end());
    if (record.output_len > 1) {
      tpots.push_back(tpot_of(record));
    }
    good += is_good(record, goodput) ? 1 : 0;
  }
  const auto rate = [duration_s](auto count) {
    return duration_s > 0.0 ? static_cast<double>(count) / duration_s : 0.0;
  };
  report.request_throughput = rate(report.completed);
  report.request_goodput = rate(good);
  report.output_throughput = rate(report.total_output_tokens);
  report.total_token_throughput = rate(report.total_input_tokens + report.total_output_tokens);
  report.max_output_tokens_per_s = peak_tokens(records, begin);
  report.max_concurrent_requests = peak_concurrency(records);
  report.ttft = summarise(ttfts, percentiles);
  report.tpot = summarise(tpots, percentiles);
  report.itl = summarise(itls, percentiles);
  report.e2el = summarise(latencies, percentiles);
  return report;
}

}  // namespace nibble::client
