#pragma once
#include <string>

#include <boost/system/error_code.hpp>
#include <boost/system/system_error.hpp>

#include <distgrad/config.hpp>
#include <distgrad/core/ids.hpp>
#include <distgrad/core/without_exceptions.hpp>

namespace distgrad {

using error_code = boost::system::error_code;

/// Every error the library reports. Numbers are grouped by room and never change.
enum class errc : int {
  // core
  timeout = 1,           ///< The operation did not finish before its deadline.
  peer_lost = 2,         ///< The connection to the worker ended or its process died.
  closed = 3,            ///< The engine, transport or future was shut down.
  bad_message = 4,       ///< A peer sent bytes that do not follow the protocol.
  refused = 5,           ///< The peer understood the request and declined it.
  cancelled = 6,         ///< The caller withdrew the operation.
  invalid_argument = 7,  ///< An argument is outside what the function accepts.
  internal = 8,          ///< An invariant of the library does not hold; please report it.
  remote_unknown = 9,    ///< A peer reported an error number this version does not know.
  not_supported = 10,    ///< The operation is not available in this configuration.
  limit_reached = 11,    ///< A bound that was set when the program was built leaves no room.
  // wire
  bad_magic = 20,         ///< The bytes are no distgrad frame.
  version_mismatch = 21,  ///< The peer speaks another protocol version.
  frame_too_large = 22,   ///< A length in the frame exceeds the configured limit.
  truncated = 23,         ///< The bytes end before the value does.
  // transport and rendezvous
  unknown_worker = 40,       ///< No worker of that name or rank is in the group.
  address_in_use = 41,       ///< Another program listens on the port.
  unreachable = 42,          ///< No connection to the address could be made.
  duplicate_name = 43,       ///< Two workers of the group have the same name.
  duplicate_rank = 44,       ///< Two workers of the group have the same rank.
  world_size_mismatch = 45,  ///< Workers disagree about the number of workers.
  invalid_name = 46,         ///< The worker name is empty, too long or has other characters.
  bad_secret = 47,           ///< The peer does not know the job's secret.
  // serialize
  unsupported_tensor = 60,  ///< The tensor's layout, type or device cannot be sent.
  bad_value = 61,           ///< A received value does not decode as the expected type.
  // rpc
  unknown_function = 80,    ///< The callee has not registered the function.
  signature_mismatch = 81,  ///< The callee's function has other argument or return types.
  remote_exception = 82,    ///< The called function threw.
  pool_exhausted = 83,      ///< So many calls wait inside handlers that no thread may be added.
  // rref
  not_owner = 100,             ///< The value lives on another worker.
  rref_creation_failed = 101,  ///< The function that should create the value failed.
  rref_deleted = 102,          ///< The value was deleted on its owner.
  // autograd
  no_context = 120,       ///< The thread is in no distributed autograd context.
  context_active = 121,   ///< The thread is in a distributed autograd context already.
  unknown_context = 122,  ///< The context does not exist on this worker or was released.
  unknown_message = 123,  ///< The context has no send function with that message id.
  invalid_root = 124,     ///< A root cannot start a backward pass.
  // engine
  pass_failed = 140,   ///< A node, hook or message of the backward pass failed.
  pass_stuck = 141,    ///< Send functions wait for gradients that nobody will send.
  pass_aborted = 142,  ///< Another worker's failure ended the backward pass.
};

/// Portable conditions that any library error can be compared with:
/// `if (error.code() == distgrad::condition::peer_lost)`.
enum class condition : int {
  timeout = 1,      ///< A deadline passed.
  peer_lost = 2,    ///< The worker cannot be reached, now or any more.
  closed = 3,       ///< This side was shut down.
  bad_message = 4,  ///< The other side broke the protocol.
  refused = 5,      ///< The other side declined.
};

DISTGRAD_DECL boost::system::error_category const& distgrad_category() noexcept;
DISTGRAD_DECL boost::system::error_category const& condition_category() noexcept;
DISTGRAD_DECL error_code make_error_code(errc e) noexcept;
DISTGRAD_DECL boost::system::error_condition make_error_condition(condition c) noexcept;

/// Whether `value` is the number of an enumerator of `errc`.
DISTGRAD_DECL bool is_known_errc(int value) noexcept;

/// A short name for counters and logs: that of the enumerator ("timeout"), "none" without an error,
/// and "category:number" for errors that are not the library's.
DISTGRAD_DECL std::string error_name(error_code const& code);

/// The single base of what the library throws.
class Error : public boost::system::system_error {
 public:
  /// @param what names the worker, the call, how long it waited and what to try.
  explicit Error(errc code, std::string const& what = {});
  explicit Error(error_code code, std::string const& what = {})
      : boost::system::system_error(code, what), text_(what) {}

  /// The description alone, without the code's sentence.
  std::string const& text() const noexcept { return text_; }

 private:
  std::string text_;
};

/// Throws `Error(code, what)`. A program without exceptions writes it to stderr and ends.
[[noreturn]] DISTGRAD_DECL void throw_error(error_code code, std::string const& what = {});

/// An error that happened on another worker, or in a function called through the library.
class RemoteError : public Error {
 public:
  RemoteError(error_code code, std::string worker, std::string function, CallId call,
              std::string text);

  /// Name of the worker where it happened.
  std::string const& worker() const noexcept { return worker_; }
  /// Wire name of the function that failed; empty if no function was involved.
  std::string const& function() const noexcept { return function_; }
  CallId call() const noexcept { return call_; }
  /// The original message, as the callee's exception gave it.
  std::string const& remote_text() const noexcept { return remote_text_; }

 private:
  std::string worker_, function_;
  CallId call_;
  std::string remote_text_;
};

/// An error as a value: for sending it, logging it, or where nothing is thrown.
struct ErrorReport {
  error_code code;
  std::string text;
};

}  // namespace distgrad

template <>
struct boost::system::is_error_code_enum<distgrad::errc> : std::true_type {};
template <>
struct boost::system::is_error_condition_enum<distgrad::condition> : std::true_type {};

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/core/impl/error.ipp>
#endif
