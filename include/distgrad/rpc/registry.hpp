#pragma once
#include <atomic>
#include <deque>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/rpc/function.hpp>

namespace distgrad {

/// The functions a worker can be asked to run: all that the program uses remotely anywhere, and
/// those the engine was told explicitly. @threads safe: shared object.
class Registry {
 public:
  Registry();

  /// Adds `function` under another name, and makes calls of it from this engine use that name.
  /// @throws Error `invalid_argument` if the name is taken by another function.
  void define(std::string name, detail::ProgramFunction const& function);

  /// The function a peer asked for; overloads are told apart by their signatures.
  /// @throws Error `unknown_function`, with names that are near; `signature_mismatch`; `refused` if
  /// two functions of the program have both the name and the signature.
  FunctionEntry const& find(std::string_view name, std::uint64_t signature) const;

  /// Every name a call may use, in alphabetical order.
  std::vector<std::string> names() const;

  /// The name calls of `function` use.
  std::string_view name_of(detail::ProgramFunction const& function) const;

 private:
  struct Slot {
    FunctionEntry const* entry;
    bool ambiguous = false;
  };
  using Overloads = std::vector<Slot>;
  static Slot* find_overload(Overloads& overloads, std::uint64_t signature);
  void scan_program() const;
  std::string near_names(std::string_view name) const;

  mutable std::mutex mutex_;
  mutable std::unordered_map<std::string_view, Overloads> by_name_;
  mutable detail::ProgramFunction const* newest_seen_ = nullptr;
  std::deque<FunctionEntry> defined_;
  std::unordered_map<detail::ProgramFunction const*, std::string_view> renamed_;
  std::atomic<bool> has_renamed_{false};
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/registry.ipp>
#endif
