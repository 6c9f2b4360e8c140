#pragma once
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include <distgrad/autograd/gradient_map.hpp>
#include <distgrad/config.hpp>
#include <distgrad/core/unique_function.hpp>
#include <distgrad/engine/detail/node_index.hpp>
#include <distgrad/queue/stream_order.hpp>
#include <distgrad/tensor/compat.hpp>

#include <ATen/ThreadLocalState.h>

namespace distgrad {

/// Which gradients of a message the pass leads to. Behind the others nothing shall run, not even
/// with an undefined gradient: in the uncut graph nothing would.
using Lives = std::vector<bool>;

/// How an executor meets the nodes that stand for another worker (recv functions). Such a node has
/// no next edges; its hooks are run, but it is not called.
struct Boundary {
  /// Tells recv functions from other nodes without next edges; none are when it is null.
  bool (*is_boundary)(Node const& node) = nullptr;
  /// Called once per recv function when all its gradients are summed: one per input, undefined
  /// where there is none. Runs inside `run_ready`; may call `inject`.
  unique_function<void(Node& node, variable_list gradients, Lives lives)> on_gradients;
};

/// Mixed into a node that leads further than its next edges do: it finds out where when it is
/// called. A restricted pass calls it in any case.
class OpenEnded {
 public:
  virtual ~OpenEnded() = default;
};

/// One worker's part of one backward pass: a graph of libtorch nodes, walked by hand.
///
/// First discovery: `expand` and `add_root` count how many gradients each reachable node will get.
/// Not all need come: of what was counted, `mark` tells what takes part, `retire` drops the rest.
/// Then execution: `inject` brings gradients from other workers, `run_ready` runs what has all its
/// gradients, until `is_complete()`. Nodes are called through their public interface only, with
/// hooks, sums, casts and order as libtorch's engine has them, so gradients are bitwise equal to
/// its own. Leaves are not called: their gradients go to `gradients()`, and `.grad` stays as it is.
///
///     Executor executor({.retain_graph = false}, {&is_recv, send_to_peer});
///     executor.expand(send_functions);
///     executor.add_root(loss);
///     while (!executor.is_complete()) { executor.run_ready(); inject_what_arrives(executor); }
///     context_gradients.merge(executor.take_gradients());
///
/// On devices, a node runs on the streams its forward part ran on. Gradients it gets from nodes on
/// other streams are ordered before it by events, and summed on its stream; the host waits for
/// nothing.
///
/// @threads one at a time, any thread: the thread-local state of the constructing one is installed
/// while nodes run. Only `cancel` may be called at any moment.
class Executor {
 public:
  struct Options {
    bool retain_graph = false;   ///< Nodes keep what they saved, so that another pass can follow.
    bool create_graph = false;   ///< Gradients get a graph of their own.
    bool is_restricted = false;  ///< Only leaves given to `keep` get gradients.
  };

  /// @param streams orders work on devices, and outlives this; null if all is on the CPU.
  explicit Executor(Options options, Boundary boundary = {}, StreamOrder* streams = nullptr);

  /// Adds send functions: nodes whose gradients will come by `inject`. Those already known are
  /// passed over. May be called several times before the first `run_ready`.
  /// @throws Error `errc::pass_failed` if a node ends the graph that is neither leaf nor boundary.
  void expand(std::span<node_ptr const> sends);

  /// Starts at `root`.
  /// @param gradient undefined: 1, which is possible for a root with a single element.
  /// @throws Error `errc::invalid_root` if the root needs no gradient or the gradient does not fit.
  void add_root(at::Tensor const& root, at::Tensor gradient = {});

  /// Says that everything the roots, and these send functions, lead to takes part in the pass. May
  /// be called between the last `expand` and `retire`, also while nodes run.
  /// @return recv functions that were not marked before.
  /// @threads any, one call of the two at a time.
  std::vector<Node*> mark_roots();
  std::vector<Node*> mark(std::span<node_ptr const> sends);

  /// Nothing comes from what is not marked: it will not run, and nobody waits for it.
  void retire();

  /// With `is_restricted`: a leaf that shall get its gradient. Nodes that lead to none of them and
  /// to no other worker are not run.
  /// @throws Error `errc::invalid_argument` if it is no leaf that requires a gradient.
  void keep(at::Tensor const& leaf);
  /// The same leaves as another executor of this worker.
  void keep_as(Executor const& other) { kept_ = other.kept_; }

  /// The pass ends at `node`, wherever it leads: its gradients are kept for `take_captured`.
  void capture(node_ptr const& node);
  /// Once complete: what reached a captured node, one per input; empty if nothing did. Ready for
  /// the calling thread's current streams, as is what `take_gradients` returns.
  variable_list take_captured(Node const& node);

  /// The recv functions found since the last call, each once per executor.
  std::vector<Node*> take_reached();

  /// Brings the gradients of a send function that was given to `expand`. It is called like any
  /// other node when its turn comes, and shall return what it gets.
  /// @param gradients one per input of `send`, undefined where there is none.
  /// @throws Error `errc::bad_message` if they do not fit, the send function is not part of this
  /// pass, or it got its gradients before. Nothing has changed then.
  /// @param gradients on the calling thread's current streams.
  /// @param lives one per gradient; none at all: all live.
  void inject(Node const& send, variable_list gradients, Lives lives = {});

  /// Runs ready nodes, latest first, until none is left or the pass is cancelled. Returns at once
  /// when called from inside a node or after a failure.
  /// @return whether any node ran.
  /// @throws whatever a node or hook throws, unchanged; see `current_node_name`. The pass has
  /// failed then: it runs nothing more.
  bool run_ready();

  /// Makes `run_ready` return before the next node, for good.
  /// @threads any, at any time.
  void cancel() noexcept { is_cancelled_.store(true, std::memory_order_relaxed); }

  /// Whether no node could run now.
  bool is_idle() const noexcept { return ready_.empty() && pending_roots_.empty(); }
  /// Whether every discovered node has run.
  bool is_complete() const noexcept { return finished_ == states_.size() && !is_failed_; }
  /// Whether a node failed, discovery failed, or the pass was cancelled: nothing more will run.
  bool is_failed() const noexcept { return is_failed_; }

  /// Number of nodes discovered.
  std::size_t size() const noexcept { return states_.size(); }
  /// Number of nodes that have not run yet.
  std::size_t waiting() const noexcept { return states_.size() - finished_; }
  /// Number of nodes that have some but not all of their gradients.
  std::size_t partial() const noexcept;
  /// The send functions whose gradients are still to come.
  std::vector<Node*> awaited_sends() const;
  /// Names of nodes that have not run, at most `limit`, for an error's text.
  std::vector<std::string> waiting_names(std::size_t limit = 8) const;

  /// The node that is running or has failed; null between nodes.
  Node* current_node() const noexcept { return current_; }
  /// Its name; empty between nodes.
  std::string current_node_name() const;
  /// The name of the node that ran last; empty before the first.
  std::string last_node_name() const;

  /// What the leaves got so far.
  GradientMap const& gradients() const noexcept { return gradients_; }
  GradientMap take_gradients();
  /// Adds gradients of leaves that a node found by itself.
  void add_gradients(GradientMap&& found) {
    gradients_.merge(std::move(found), options_.create_graph, streams_);
    has_found_ = true;
  }

 private:
  enum class Kind : std::uint8_t { inner, leaf, boundary, send, captured, dropped };

  struct NodeState {
    Node* node;
    variable_list inputs;        // sums of the gradients so far; empty before the first: not live
    std::uint32_t dependencies;  // gradients that are still to come
    std::uint32_t first_target;  // where its next nodes begin in targets_
    Kind kind = Kind::inner;
    bool is_shared = false;    // leaf: its gradient also goes elsewhere
    bool is_injected = false;  // send
  };

  struct Ready {
    std::uint64_t sequence_nr;
    std::uint32_t number;
    friend bool operator<(Ready a, Ready b) { return a.sequence_nr < b.sequence_nr; }
  };

  struct PendingRoot {
    std::uint32_t number;
    std::uint32_t input_nr;
    at::Tensor gradient;
  };

  void require_discovery() const;
  std::uint32_t intern(Node* node);
  void expand_found();
  void expand_node(std::uint32_t number);
  Kind classify_end(Node& node) const;

  std::vector<Node*> mark_from(std::vector<std::uint32_t> numbers);
  std::size_t edges_of(NodeState const& state) const { return state.node->next_edges().size(); }
  void drop(NodeState& state);
  void begin();
  void drop_unneeded();
  bool is_wanted(NodeState const& state) const;

  void run_loop();
  void deliver_roots();
  void deliver(std::uint32_t number, std::uint32_t input_nr, at::Tensor&& gradient);
  std::optional<c10::Stream> hand_over(at::Tensor const& gradient, Node const& to);
  void finish_use(at::Tensor const& gradient);
  void deliver_single(std::uint32_t number, variable_list&& gradient);
  void count_delivery(std::uint32_t number);
  void make_ready(std::uint32_t number);
  void run_node(std::uint32_t number);
  void route(NodeState const& from, variable_list&& outputs);
  void route_send(NodeState const& from, variable_list&& outputs, Lives const& lives);
  void pass_by(std::uint32_t target);
  void pass_by_all(NodeState const& from);
  void finish_leaf(NodeState const& state, variable_list&& inputs);
  void finish_boundary(NodeState const& state, variable_list&& inputs, Lives lives);
  void finish_captured(NodeState& state, variable_list&& inputs);
  void drop_work() noexcept;

  Options options_;
  Boundary boundary_;
  StreamOrder* streams_;
  at::ThreadLocalState thread_state_;
  GradientMap gradients_;

  detail::NodeIndex index_;
  std::vector<NodeState> states_;       // in breadth-first order
  std::vector<std::uint32_t> targets_;  // number of the next node of each edge of each node
  std::vector<node_ptr> held_;          // starts: every other node lives through a next edge
  std::vector<Node*> reached_;
  std::vector<node_ptr> kept_;  // leaves, with is_restricted
  std::vector<std::uint32_t> captured_;
  std::vector<std::uint32_t> roots_;
  std::vector<bool> marks_;
  std::unordered_map<std::uint32_t, Lives> lives_;  // of send and recv functions
  std::vector<PendingRoot> pending_roots_;
  std::vector<Ready> ready_;  // a heap
  std::size_t expanded_ = 0;
  std::size_t finished_ = 0;
  Node* current_ = nullptr;
  Node* last_ = nullptr;
  std::atomic<bool> is_cancelled_{false};
  bool is_running_ = false;
  bool has_started_ = false;
  bool is_failed_ = false;
  bool has_found_ = false;  // gradients_ has some that other streams than their leaves' added
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/executor.ipp>
#include <distgrad/engine/impl/executor_discovery.ipp>
#endif
