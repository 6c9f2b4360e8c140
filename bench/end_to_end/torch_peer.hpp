// The competitor: libtorch's own TensorPipe agent and distributed autograd, driven from C++.
// This header names none of libtorch's RPC; `torch_peer.cpp` does, where this libtorch has it.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace bench {

/// One of two workers, "w0" and "w1", that call each other over TCP.
class TorchPeer {
 public:
  /// Empty when this libtorch can take part, else the reason why not.
  static std::string why_absent();

  /// Starts the agent and waits for the other worker. TensorPipe blocks one of its `threads` for
  /// every call that waits inside a handler, so nested calls need more than their depth.
  TorchPeer(int rank, std::uint16_t port, int threads);
  /// Waits until the other worker is done as well.
  ~TorchPeer();
  TorchPeer(TorchPeer const&) = delete;
  TorchPeer& operator=(TorchPeer const&) = delete;

  /// Sends `x` to the other worker and returns what comes back, without autograd.
  at::Tensor echo(at::Tensor const& x);

  /// A distributed autograd context, opened and released with its scope.
  class Context {
   public:
    Context();
    ~Context();
    Context(Context const&) = delete;
    Context& operator=(Context const&) = delete;
    void backward(std::vector<at::Tensor> const& roots);
    at::Tensor gradient(at::Tensor const& leaf) const;

   private:
    std::int64_t id_;
  };

  Context context() { return Context{}; }

  /// `x * y` at the other worker, recorded in the current context.
  at::Tensor mul(at::Tensor const& x, at::Tensor const& y);

  /// `hops` multiplications by 1.001, each at the other worker than the one before and each called
  /// from inside the one before.
  at::Tensor nested(at::Tensor const& x, std::int64_t hops);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace bench
