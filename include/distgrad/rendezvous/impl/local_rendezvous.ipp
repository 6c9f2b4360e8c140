#pragma once
#include <utility>

#include <distgrad/rendezvous/local_rendezvous.hpp>

namespace distgrad {

DISTGRAD_DECL std::vector<PeerAddress> LocalMeetingPoint::exchange(PeerAddress self,
                                                                   std::uint32_t world_size,
                                                                   Deadline deadline) {
  detail::check_world_size(world_size, self.info);
  std::unique_lock lock(mutex_);
  if (!table_) table_.emplace(world_size);
  if (!problem_) {
    if (auto problem = table_->add({std::move(self), world_size})) fail(std::move(*problem));
  }
  auto const is_over = [this] { return problem_ || table_->is_complete(); };
  if (deadline.is_never()) {
    changed_.wait(lock, is_over);
  } else if (!changed_.wait_until(lock, deadline.at, is_over)) {
    fail({errc::timeout,
          "the group was not complete in time: " + table_->missing_text() + " did not register"});
  }
  if (problem_) throw_error(problem_->code, problem_->text);
  changed_.notify_all();
  return table_->group();
}

DISTGRAD_DECL void LocalMeetingPoint::fail(ErrorReport problem) {
  problem_ = std::move(problem);
  changed_.notify_all();
}

}  // namespace distgrad
