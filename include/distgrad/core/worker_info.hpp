#pragma once
#include <string>
#include <string_view>

#include <distgrad/core/ids.hpp>

namespace distgrad {

/// Who a worker is: its name, its rank, and which life of that rank.
struct WorkerInfo {
  std::string name;
  WorkerId id;
  Incarnation incarnation;
  friend bool operator==(WorkerInfo const&, WorkerInfo const&) = default;
};

/// Longest worker name, in characters.
inline constexpr std::size_t max_worker_name_characters = 127;

/// Whether `name` is 1 to 127 characters from `A-Z a-z 0-9 _ : -`.
constexpr bool is_valid_worker_name(std::string_view name) {
  if (name.empty() || name.size() > max_worker_name_characters) return false;
  for (char c : name) {
    bool const ok = (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') ||
                    c == '_' || c == ':' || c == '-';
    if (!ok) return false;
  }
  return true;
}

/// How a call names its destination: a worker's name, its rank, its id or its `WorkerInfo`.
/// It views the name: it must not outlive the call it was made for.
class WorkerRef {
 public:
  WorkerRef(std::string_view name) : name_(name) {}
  WorkerRef(char const* name) : name_(name) {}
  WorkerRef(std::string const& name) : name_(name) {}
  WorkerRef(WorkerInfo const& info) : rank_(info.id.value) {}
  WorkerRef(WorkerId id) : rank_(id.value) {}
  /// A rank. Negative ranks are kept as such and refused where the reference is resolved.
  WorkerRef(int rank) : rank_(rank) {}

  /// Empty when the worker is given by rank.
  std::string_view name() const { return name_; }
  std::int64_t rank() const { return rank_; }
  bool is_name() const { return rank_ < 0 && name_.data() != nullptr; }

 private:
  std::string_view name_;
  std::int64_t rank_ = -1;
};

}  // namespace distgrad
