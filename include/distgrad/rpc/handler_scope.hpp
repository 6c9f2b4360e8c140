#pragma once
#include <distgrad/core/ids.hpp>

namespace distgrad {

class RpcAgent;

/// Marks the calling thread as running a function another worker (or this one) called.
class HandlerScope {
 public:
  HandlerScope(RpcAgent& agent, WorkerId from) : agent_(agent), from_(from), outer_(current()) {
    current() = this;
  }
  ~HandlerScope() { current() = outer_; }
  HandlerScope(HandlerScope const&) = delete;
  HandlerScope& operator=(HandlerScope const&) = delete;

  RpcAgent& agent() const { return agent_; }
  WorkerId from() const { return from_; }

  /// The innermost scope of this thread, or null outside of any handler.
  static HandlerScope*& current() {
    thread_local HandlerScope* scope = nullptr;
    return scope;
  }

 private:
  RpcAgent& agent_;
  WorkerId from_;
  HandlerScope* outer_;
};

}  // namespace distgrad
