#pragma once
// One worker of a modelled pass: a real `PassProtocol`, and around it the shell in small. Nodes are
// numbers, messages are values; an event goes in, a new state and messages come out.

#include "abstract_graph.hpp"
#include "pass_print.hpp"

#include <algorithm>
#include <array>
#include <cstdint>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/engine/pass_protocol.hpp>

namespace pass_model {

using namespace distgrad;
using abstract_graph::Graph;

/// A property of the protocol that does not hold.
struct Broken : std::logic_error {
  using logic_error::logic_error;
};
inline void require(bool holds, std::string const& otherwise) {
  if (!holds) throw Broken(otherwise);
}

// --- messages ------------------------------------------------------------------------------------

enum class Kind : std::uint8_t {
  discover,
  discovered,
  gradient,
  done,
  release,
  commit,
  committed,
  failed,
  abort,
  aborted,
  lost
};
inline constexpr std::array<char const*, 11> kind_names{
    "DISCOVER",  "DISCOVERED", "GRAD",  "DONE",    "RELEASE", "COMMIT",
    "COMMITTED", "FAILED",     "ABORT", "ABORTED", "LOST"};

struct Message {
  Kind kind;
  int from, to;
  std::uint32_t number = 0;  // of a question; of the pair, for a gradient
  std::vector<AutogradMessageId> messages = {};
  std::set<WorkerId> workers = {};

  std::string text() const {
    auto out = std::string(kind_names[std::size_t(kind)]) + " " + std::to_string(from) + ">" +
               std::to_string(to) + " " + std::to_string(number);
    for (auto const& message : messages) out += " m" + std::to_string(message.sequence);
    for (auto worker : workers) out += " w" + std::to_string(worker.value);
    return out;
  }
};

/// How a pass runs in the model.
struct Rules {
  PassOptions options = {};
  int failing_node = -1;
  /// How many messages of each kind were sent belongs to the state.
  bool counts = false;
};

// --- one worker ----------------------------------------------------------------------------------

/// The nodes of one worker as the executor keeps them.
struct Nodes {
  std::uint32_t expanded = 0, marked = 0, ran = 0, injected = 0, retired = 0;
  std::vector<std::uint8_t> waits;  // dependencies not met, by node
  std::vector<std::uint32_t> got;   // from which nodes, by node
};

class Part {
 public:
  Part(Graph const& graph, Rules const& rules, int self)
      : graph_(&graph), rules_(&rules), self_(self) {
    nodes_.waits.resize(graph.nodes.size());
    nodes_.got.resize(graph.nodes.size());
    if (is_initiator()) add();
  }

  // Events; what they send lies in `sent` afterwards.
  void begin();
  void deliver(Message const& message);
  /// The driver's turn: a slice of nodes, or the news that it shall stop.
  void run();
  bool can_run() const;
  /// An overlapped pass asks when it has waited long enough, which may be at any time.
  void start_discovery();
  bool can_start_discovery() const;
  /// The context is released.
  void release_context();

  std::vector<Message> sent;

  bool is_initiator() const { return self_ == 0; }
  /// Not heard of, or finished.
  bool has_no_state() const { return !protocol_ && !drives_; }
  bool is_over() const { return over_; }
  bool has_failed() const { return failed_; }
  bool is_complete() const { return complete_; }
  bool is_visible() const { return visible_; }
  bool is_finding_out() const { return protocol_ && !protocol_->discovery().is_finished(); }
  std::uint32_t nodes_that_ran() const { return nodes_.ran; }
  std::uint32_t nodes_that_were_found() const { return found_; }
  std::set<AutogradMessageId> const& active() const { return active_; }
  std::set<WorkerId> const& participants() const { return participants_; }
  int number_sent(Kind kind) const { return counts_[std::size_t(kind)]; }
  std::string print() const;

 private:
  bool is_smart() const { return rules_->options.is_smart; }
  bool is_overlapped() const { return rules_->options.is_overlapped; }
  static std::uint32_t bit(int n) { return std::uint32_t{1} << n; }
  WorkerId id() const { return WorkerId(std::uint32_t(self_)); }

  void add();
  void join();
  void post(Kind kind, WorkerId to, Message rest = {});
  void carry_out(PassActions const& actions);
  void on_discover(Message const& message);
  void on_gradient(Message const& message);
  void fail();

  // the executor in small
  Reached follow(std::vector<int> nodes);
  std::vector<int> expand(std::vector<int> nodes);
  std::vector<int> mark(std::vector<int> nodes);
  void retire();
  void run_slice();
  void run_node(int node);
  void inject(int pair);
  void arrive(int from, int node);
  bool is_complete_now() const;

  Graph const* graph_;
  Rules const* rules_;
  int self_;
  std::optional<PassProtocol> protocol_;
  Nodes nodes_;
  std::vector<int> inbox_, ready_, reached_;
  bool over_ = false, released_ = false, joined_ = false;
  bool has_begun_ = false, drives_ = false, retires_ = false;
  bool complete_ = false, visible_ = false, failed_ = false;
  // as it was when the pass was finished here
  std::uint32_t found_ = 0;
  std::set<AutogradMessageId> active_;
  std::set<WorkerId> participants_;
  std::array<std::uint8_t, kind_names.size()> counts_{};
};

}  // namespace pass_model
