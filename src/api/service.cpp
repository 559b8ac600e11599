#include "nibble/service.h"

#include <utility>

#include "api/service_loop.h"
#include "base/error.h"

namespace nibble {

struct Service::Impl {
  ServiceLoop loop;
};

Service::Service(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Service::Service(Service&&) noexcept = default;
Service& Service::operator=(Service&&) noexcept = default;
Service::~Service() = default;

Result<Service> Service::start(const ServiceOptions& options) {
  if (options.max_queued < 0) {
    return error(Code::kInvalidArgument, "max_queued: want 0 or more, found {}",
                 options.max_queued);
  }
  NIBBLE_ASSIGN_OR_RETURN(TextModel model, TextModel::load(options.engine));
  const std::int32_t max_active = options.engine.max_num_seqs + options.max_queued;
  return Service(std::unique_ptr<Impl>(new Impl{{std::move(model), max_active}}));
}

const EngineInfo& Service::info() const { return impl_->loop.model().info; }

Result<RequestId> Service::submit(const Request& request, RequestSink sink) {
  return impl_->loop.submit(request, std::move(sink));
}

Result<std::vector<RequestId>> Service::submit(const Request& request,
                                               std::vector<RequestSink> sinks) {
  return impl_->loop.submit(request, std::move(sinks));
}

void Service::cancel(RequestId id) { impl_->loop.cancel(id); }

ServiceStats Service::stats() const { return impl_->loop.stats(); }

void Service::drain() { impl_->loop.drain(); }

bool Service::wait_until_idle(std::chrono::milliseconds timeout) const {
  return impl_->loop.wait_until_idle(timeout);
}

void Service::stop() { impl_->loop.stop(); }

Result<std::vector<std::int32_t>> Service::encode(const std::string& text,
                                                  bool with_special) const {
  return impl_->loop.model().encode(text, with_special);
}

Result<std::string> Service::decode(const std::vector<std::int32_t>& ids) const {
  return impl_->loop.model().decode(ids);
}

Result<std::vector<std::int32_t>> Service::prompt_ids(const Request& request) const {
  return impl_->loop.model().prompt_ids(request);
}

std::string Service::token_bytes(std::int32_t id) const {
  const auto& tokenizer = impl_->loop.model().tokenizer;
  return tokenizer.has_value() ? std::string(tokenizer->token_bytes(id)) : std::string();
}

}  // namespace nibble
