#pragma once
#include <algorithm>
#include <vector>

#include <distgrad/rpc/registry.hpp>

namespace distgrad {
namespace detail {

/// Number of single-character edits between two names, in the plain quadratic way.
inline std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    auto diagonal = std::exchange(row[0], i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      auto const change = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, change});
    }
  }
  return row.back();
}

}  // namespace detail

DISTGRAD_DECL Registry::Registry() { scan_program(); }

DISTGRAD_DECL void Registry::scan_program() const {
  auto const* newest = detail::program_functions().load();
  for (auto const* f = newest; f != newest_seen_; f = f->next) {
    auto& overloads = by_name_[f->entry.name];
    if (auto* const slot = find_overload(overloads, f->entry.signature)) {
      if (slot->entry->bind != f->entry.bind) slot->ambiguous = true;
    } else {
      overloads.push_back({&f->entry});
    }
  }
  newest_seen_ = newest;
}

DISTGRAD_DECL Registry::Slot* Registry::find_overload(Overloads& overloads,
                                                      std::uint64_t signature) {
  auto const at = std::ranges::find(overloads, signature,
                                    [](Slot const& slot) { return slot.entry->signature; });
  return at == overloads.end() ? nullptr : &*at;
}

DISTGRAD_DECL void Registry::define(std::string name, detail::ProgramFunction const& function) {
  std::lock_guard lock(mutex_);
  scan_program();
  auto const is_other = [&](Slot const& s) { return s.entry->bind != function.entry.bind; };
  if (auto const at = by_name_.find(name);
      at != by_name_.end() && std::ranges::any_of(at->second, is_other)) {
    throw Error(errc::invalid_argument,
                "the function name '" + name + "' is taken by another function of this worker");
  }
  auto& entry = defined_.emplace_back(function.entry);
  entry.name = std::move(name);
  by_name_.insert_or_assign(entry.name, Overloads{{&entry}});
  renamed_.insert_or_assign(&function, entry.name);
  has_renamed_.store(true, std::memory_order_release);
}

DISTGRAD_DECL FunctionEntry const& Registry::find(std::string_view name,
                                                  std::uint64_t signature) const {
  std::lock_guard lock(mutex_);
  auto at = by_name_.find(name);
  if (at == by_name_.end()) {
    scan_program();
    at = by_name_.find(name);
  }
  if (at == by_name_.end()) {
    throw Error(errc::unknown_function,
                "no function '" + std::string(name) + "' is registered here" + near_names(name) +
                    "; a program registers what it uses in rpc_sync, rpc_async or remote, and "
                    "what it names with define");
  }
  auto const* const slot = find_overload(at->second, signature);
  if (slot && slot->ambiguous) {
    throw Error(errc::refused, "two functions of this program are called '" + std::string(name) +
                                   "'; give them names with define");
  }
  if (!slot) {
    throw Error(errc::signature_mismatch,
                "'" + std::string(name) +
                    "' takes or returns other types on this worker; build "
                    "both programs from the same declaration");
  }
  return *slot->entry;
}

DISTGRAD_DECL std::string_view Registry::name_of(detail::ProgramFunction const& function) const {
  if (has_renamed_.load(std::memory_order_acquire)) {
    std::lock_guard lock(mutex_);
    if (auto const at = renamed_.find(&function); at != renamed_.end()) return at->second;
  }
  return function.entry.name;
}

DISTGRAD_DECL std::vector<std::string> Registry::names() const {
  std::lock_guard lock(mutex_);
  scan_program();
  std::vector<std::string> names;
  for (auto const& [name, overloads] : by_name_) names.emplace_back(name);
  std::ranges::sort(names);
  return names;
}

DISTGRAD_DECL std::string Registry::near_names(std::string_view name) const {
  name = name.substr(0, 256);  // a peer chose it
  std::vector<std::pair<std::size_t, std::string_view>> ranked;
  for (auto const& [known, overloads] : by_name_) {
    if (known.starts_with("lambda:")) continue;
    auto const distance = detail::edit_distance(name, known.substr(0, 256));
    if (distance <= 2 + name.size() / 3) ranked.emplace_back(distance, known);
  }
  std::ranges::sort(ranked);
  std::string text;
  for (std::size_t i = 0; i < ranked.size() && i < 3; ++i) {
    text += (i ? ", '" : " (near: '") + std::string(ranked[i].second) + "'";
  }
  return text.empty() ? text : text + ")";
}

}  // namespace distgrad
