#pragma once
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/engine/executor.hpp>
#include <distgrad/engine/pass.hpp>
#include <distgrad/rref/rref.hpp>
#include <distgrad/serialize/visit_tensors.hpp>

#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/saved_variable.h>

namespace distgrad {
namespace detail {

/// The `grad_fn` of what a checkpointed function returned: has kept its arguments, and runs it
/// again to differentiate it. @threads as any node; passes may run it at the same time.
class CheckpointBackward final : public Node, public OpenEnded {
 public:
  /// Runs the function on its arguments with `tensors` in place of theirs. @return its result's.
  using Again = std::function<variable_list(variable_list tensors)>;

  /// @param tensors the arguments', in the order of `visit_tensors`; kept until released.
  CheckpointBackward(std::string function, variable_list const& tensors);

  /// Runs the function by `run`, for its result alone: nothing is recorded, here or elsewhere.
  void run_forward(unique_function<void()> run);
  /// Makes `node` the `grad_fn` of the tensors of a result that can have one.
  static void attach(node_ptr const& node, std::vector<at::Tensor*> const& results, Again again);

  /// @throws Error `pass_failed` if the function did not return what it had returned before.
  variable_list apply(variable_list&& gradients) override;
  void release_variables() override;
  std::string name() const override { return "CheckpointBackward<" + function_ + ">"; }

 private:
  struct Saved {
    variable_list tensors;
    std::shared_ptr<Again const> again;
  };

  Saved unpack();
  variable_list run_again(Pass* pass, Again const& again, variable_list tensors) const;
  void choose_roots(NestedPass& part, variable_list const& results,
                    variable_list const& gradients) const;

  std::string function_;
  at::ThreadLocalState thread_state_;
  std::optional<WorkerId> called_by_;
  at::Tensor random_state_;  // undefined if the function drew no number
  std::vector<torch::autograd::SavedVariable> tensors_;
  std::shared_ptr<Again const> again_;
  bool is_released_ = false;
};

template <class T>
variable_list take_tensors(T& value) {
  variable_list tensors;
  visit_tensors(value, [&](at::Tensor& tensor) { tensors.push_back(std::move(tensor)); });
  return tensors;
}

template <class T>
void put_tensors(T& value, variable_list tensors) {
  std::size_t next = 0;
  visit_tensors(value, [&](at::Tensor& tensor) { tensor = std::move(tensors.at(next++)); });
}

template <class T>
std::vector<at::Tensor*> tensors_in(T& value) {
  std::vector<at::Tensor*> tensors;
  visit_tensors(value, [&](at::Tensor& tensor) { tensors.push_back(&tensor); });
  return tensors;
}

/// @tparam Invoke calls the function with arguments of types `A`.
template <class Result, class... A, class Invoke>
Result run_checkpointed(std::string function, Invoke invoke, A&&... args) {
  static_assert(!is_future<Result>::value,
                "a checkpointed function must return its result, not a Future of it");
  static_assert(!std::is_void_v<Result>, "a checkpointed function must return tensors");
  static_assert((std::is_copy_constructible_v<std::remove_cvref_t<A>> && ...),
                "a checkpointed function runs twice: its arguments must be copyable");
  auto saved = std::tuple<std::remove_cvref_t<A>...>(std::as_const(args)...);
  auto const node = make_node<CheckpointBackward>(std::move(function), take_tensors(saved));
  std::optional<Result> result;
  node->run_forward([&] { result.emplace(invoke(std::forward<A>(args)...)); });
  auto const call_again = [invoke](std::remove_cvref_t<A>&... copies) -> Result {
    return invoke(static_cast<A&&>(copies)...);
  };
  CheckpointBackward::attach(node, tensors_in(*result),
                             [call_again, saved = std::move(saved)](variable_list tensors) {
                               auto copies = saved;
                               put_tensors(copies, std::move(tensors));
                               auto again = std::apply(call_again, copies);
                               return take_tensors(again);
                             });
  return std::move(*result);
}

template <auto F>
std::string checkpoint_name() {
  return "distgrad::checkpoint<" + function_name<F>() + ">";
}

template <auto F, class Shape = decltype(shape_of(FunctionShape<F>()))>
struct Checkpoint;
template <auto F, class C, class R, class... A>
  requires(!std::is_member_function_pointer_v<decltype(F)>)
struct Checkpoint<F, CallableShape<C, R, A...>> {
  static std::string function_name() { return checkpoint_name<F>(); }
  std::remove_cvref_t<R> operator()(A... args) const {
    if (!c10::GradMode::is_enabled()) return F(std::forward<A>(args)...);
    return run_checkpointed<std::remove_cvref_t<R>, A...>(
        detail::function_name<F>(), [](A... values) -> R { return F(std::forward<A>(values)...); },
        std::forward<A>(args)...);
  }
};
template <auto F, class C, class R, class... A>
  requires(std::is_member_function_pointer_v<decltype(F)>)
struct Checkpoint<F, CallableShape<C, R, A...>> {
  static std::string function_name() { return checkpoint_name<F>(); }
  using Object = RRef<std::remove_const_t<C>>;
  std::remove_cvref_t<R> operator()(Object const& object, A... args) const {
    auto const call = [](Object const& on, A... values) -> R {
      return (on.local_value().*F)(std::forward<A>(values)...);
    };
    if (!c10::GradMode::is_enabled()) return call(object, std::forward<A>(args)...);
    return run_checkpointed<std::remove_cvref_t<R>, Object const&, A...>(
        detail::function_name<F>(), call, object, std::forward<A>(args)...);
  }
};

}  // namespace detail

/// A function that does what `F` does, but lets go of all that autograd would keep of it until the
/// backward pass: then `F` is run again, where it ran before. Less memory for more time. Called
/// here, or on another worker, whose memory it spares:
///
///     auto y = worker.rpc_sync<distgrad::checkpoint<block>>("ps0", x);
///
/// Gradients are those of `F`: of its arguments, of leaves it finds on its worker, and, as it may
/// call other workers, of theirs. They go where the pass that runs brings the others. An ordinary
/// `backward()` works too, if it reaches no other worker.
///
/// `F` must do the same both times. Of what it depends on, these are kept for it: the tensors among
/// its arguments (which must not be changed in place before the backward pass), the state of the
/// CPU's default random generator (other threads must leave that alone while `F` runs), autocast
/// and what else belongs to the thread, and who called it. The first run is in no context.
///
/// - Every result of a floating or complex type requires a gradient: only the second run tells
///   whether it depends on anything that does.
/// - Calls to other workers that the second run makes stay in the context. A FAST pass that comes
///   by their workers afterwards fails with `pass_stuck`.
/// - With `GradientCommit::global`, workers that `F` calls must have another part in the pass;
///   `not_supported` otherwise.
/// - Hooks of a leaf run once for every checkpointed function that uses it, on its share.
///
/// @tparam F a function, a closure without captures, or a member function of a value that lives on
/// the worker: its `RRef` is the first argument then.
/// @cost one more run of `F`. If it calls other workers, one more pass among those.
template <auto F>
inline constexpr detail::Checkpoint<F> checkpoint{};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/checkpoint.ipp>
#endif
