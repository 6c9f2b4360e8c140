#pragma once
#include <utility>

#include <distgrad/core/error.hpp>

namespace distgrad {
namespace detail {

struct ErrorWords {
  char const* name = nullptr;
  char const* sentence = nullptr;
};

constexpr ErrorWords words_of(errc e) {
  switch (e) {
    case errc::timeout: return {"timeout", "the operation did not finish before its deadline"};
    case errc::peer_lost: return {"peer_lost", "the connection to the worker ended"};
    case errc::closed: return {"closed", "already shut down"};
    case errc::bad_message:
      return {"bad_message", "a peer sent bytes that do not follow the protocol"};
    case errc::refused: return {"refused", "the peer declined the request"};
    case errc::cancelled: return {"cancelled", "the operation was cancelled"};
    case errc::invalid_argument: return {"invalid_argument", "invalid argument"};
    case errc::internal: return {"internal", "internal error of distgrad"};
    case errc::remote_unknown:
      return {"remote_unknown", "the peer reported an error this version does not know"};
    case errc::not_supported: return {"not_supported", "not supported in this configuration"};
    case errc::limit_reached:
      return {"limit_reached", "a bound set when the program was built leaves no room"};
    case errc::bad_magic: return {"bad_magic", "the bytes are no distgrad frame"};
    case errc::version_mismatch:
      return {"version_mismatch", "the peer speaks another protocol version"};
    case errc::frame_too_large:
      return {"frame_too_large",
              "a length in the frame exceeds EngineOptions::limits, which are at most "
              "DISTGRAD_MAX_FRAME_BYTES"};
    case errc::truncated: return {"truncated", "the bytes end before the value does"};
    case errc::unknown_worker: return {"unknown_worker", "no such worker in the group"};
    case errc::address_in_use: return {"address_in_use", "another program listens on the port"};
    case errc::unreachable: return {"unreachable", "the address cannot be reached"};
    case errc::duplicate_name: return {"duplicate_name", "two workers have the same name"};
    case errc::duplicate_rank: return {"duplicate_rank", "two workers have the same rank"};
    case errc::world_size_mismatch:
      return {"world_size_mismatch", "workers disagree about the world size"};
    case errc::invalid_name: return {"invalid_name", "invalid worker name"};
    case errc::bad_secret: return {"bad_secret", "the peer does not know the job's secret"};
    case errc::unsupported_tensor: return {"unsupported_tensor", "the tensor cannot be sent"};
    case errc::bad_value:
      return {"bad_value", "a received value does not decode as the expected type"};
    case errc::unknown_function:
      return {"unknown_function", "the callee has not registered the function"};
    case errc::signature_mismatch:
      return {"signature_mismatch", "the callee's function has another signature"};
    case errc::remote_exception: return {"remote_exception", "the called function threw"};
    case errc::pool_exhausted: return {"pool_exhausted", "too many calls wait inside handlers"};
    case errc::not_owner: return {"not_owner", "the value lives on another worker"};
    case errc::rref_creation_failed: return {"rref_creation_failed", "RRef creation failed"};
    case errc::rref_deleted: return {"rref_deleted", "the value was deleted on its owner"};
    case errc::no_context:
      return {"no_context", "the thread is in no distributed autograd context"};
    case errc::context_active:
      return {"context_active", "the thread is in a distributed autograd context already"};
    case errc::unknown_context:
      return {"unknown_context", "could not find the distributed autograd context"};
    case errc::unknown_message:
      return {"unknown_message", "the context has no send function with that message id"};
    case errc::invalid_root: return {"invalid_root", "a root cannot start a backward pass"};
    case errc::pass_failed: return {"pass_failed", "the backward pass failed"};
    case errc::pass_stuck:
      return {"pass_stuck", "send functions wait for gradients that nobody will send"};
    case errc::pass_aborted:
      return {"pass_aborted", "another worker's failure ended the backward pass"};
  }
  return {};
}

constexpr int condition_of(int code) {
  switch (static_cast<errc>(code)) {
    case errc::timeout: return int(condition::timeout);
    case errc::peer_lost:
    case errc::unreachable: return int(condition::peer_lost);
    case errc::closed: return int(condition::closed);
    case errc::bad_message:
    case errc::bad_magic:
    case errc::version_mismatch:
    case errc::frame_too_large:
    case errc::truncated:
    case errc::bad_value: return int(condition::bad_message);
    case errc::refused:
    case errc::bad_secret:
    case errc::duplicate_name:
    case errc::duplicate_rank:
    case errc::world_size_mismatch:
    case errc::unknown_function:
    case errc::signature_mismatch: return int(condition::refused);
    default: return 0;
  }
}

class DistgradCategory final : public boost::system::error_category {
 public:
  char const* name() const noexcept override { return "distgrad"; }
  std::string message(int value) const override {
    auto const* text = words_of(static_cast<errc>(value)).sentence;
    return text ? text : "unknown distgrad error " + std::to_string(value);
  }
};

class ConditionCategory final : public boost::system::error_category {
 public:
  char const* name() const noexcept override { return "distgrad condition"; }
  std::string message(int value) const override {
    static constexpr char const* names[] = {"none",   "timeout",     "peer lost",
                                            "closed", "bad message", "refused"};
    return value >= 0 && value < int(std::size(names)) ? names[value] : "unknown condition";
  }
  bool equivalent(error_code const& code, int value) const noexcept override {
    return value != 0 && code.category() == distgrad_category() &&
           condition_of(code.value()) == value;
  }
};

}  // namespace detail

DISTGRAD_DECL boost::system::error_category const& distgrad_category() noexcept {
  static detail::DistgradCategory const category;
  return category;
}

DISTGRAD_DECL boost::system::error_category const& condition_category() noexcept {
  static detail::ConditionCategory const category;
  return category;
}

DISTGRAD_DECL error_code make_error_code(errc e) noexcept {
  return {static_cast<int>(e), distgrad_category()};
}

DISTGRAD_DECL boost::system::error_condition make_error_condition(condition c) noexcept {
  return {static_cast<int>(c), condition_category()};
}

DISTGRAD_DECL bool is_known_errc(int value) noexcept {
  return detail::words_of(static_cast<errc>(value)).name != nullptr;
}

DISTGRAD_DECL std::string error_name(error_code const& code) {
  if (!code) return "none";
  auto const* name = code.category() == distgrad_category()
                         ? detail::words_of(static_cast<errc>(code.value())).name
                         : nullptr;
  return name ? name : std::string(code.category().name()) + ":" + std::to_string(code.value());
}

DISTGRAD_DECL Error::Error(errc code, std::string const& what)
    : Error(make_error_code(code), what) {}

DISTGRAD_DECL void throw_error(error_code code, std::string const& what) {
  DISTGRAD_THROW(Error(code, what));
}

DISTGRAD_DECL RemoteError::RemoteError(error_code code, std::string worker, std::string function,
                                       CallId call, std::string text)
    : Error(code, "on worker '" + worker + "'" +
                      (function.empty() ? "" : " in '" + function + "'") + ": " + text),
      worker_(std::move(worker)),
      function_(std::move(function)),
      call_(call),
      remote_text_(std::move(text)) {}

}  // namespace distgrad
