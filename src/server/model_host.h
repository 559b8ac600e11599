// The model behind the API: what of nibble::Service the handlers use. Tests put a script in its
// place.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "nibble/service.h"

namespace nibble::server {

class ModelHost {
 public:
  virtual ~ModelHost() = default;
  virtual const EngineInfo& info() const = 0;
  // One answer for each sink.
  virtual Result<std::vector<RequestId>> submit(const Request& request,
                                                std::vector<RequestSink> sinks) = 0;
  virtual void cancel(RequestId id) = 0;
  virtual ServiceStats stats() const = 0;
  virtual Result<std::vector<std::int32_t>> encode(const std::string& text,
                                                   bool with_special) const = 0;
  virtual Result<std::string> decode(const std::vector<std::int32_t>& ids) const = 0;
  virtual Result<std::vector<std::int32_t>> prompt_ids(const Request& request) const = 0;
  virtual std::string token_bytes(std::int32_t id) const = 0;
};

class ServiceHost final : public ModelHost {
 public:
  explicit ServiceHost(Service service) : service_(std::move(service)) {}

  Service& service() { return service_; }
  const EngineInfo& info() const override { return service_.info(); }
  Result<std::vector<RequestId>> submit(const Request& request,
                                        std::vector<RequestSink> sinks) override {
    return service_.submit(request, std::move(sinks));
  }
  void cancel(RequestId id) override { service_.cancel(id); }
  ServiceStats stats() const override { return service_.stats(); }
  Result<std::vector<std::int32_t>> encode(const std::string& text,
                                           bool with_special) const override {
    return service_.encode(text, with_special);
  }
  Result<std::string> decode(const std::vector<std::int32_t>& ids) const override {
    return service_.decode(ids);
  }
  Result<std::vector<std::int32_t>> prompt_ids(const Request& request) const override {
    return service_.prompt_ids(request);
  }
  std::string token_bytes(std::int32_t id) const override { return service_.token_bytes(id); }

 private:
  Service service_;
};

}  // namespace nibble::server
