#pragma once
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include <distgrad/config.hpp>
#include <distgrad/core/ids.hpp>

namespace distgrad {

/// Messages whose send functions a part of the graph leads to, by the worker that sent them.
using Reached = std::map<WorkerId, std::vector<AutogradMessageId>>;

/// What the shell of a `DiscoveryProtocol` shall send, in this order.
struct DiscoveryActions {
  /// The send functions of `messages` take part in the pass.
  struct Discover {
    WorkerId to;
    /// Unique among those of this worker and pass.
    std::uint32_t number = 0;
    std::vector<AutogradMessageId> messages;
  };
  /// Answers a `Discover`: all that follows from it is known.
  struct Discovered {
    WorkerId to;
    std::uint32_t number = 0;
    /// Workers that take part, as far as the sender knows.
    std::set<WorkerId> participants;
  };
  std::vector<Discover> discover = {};
  std::vector<Discovered> discovered = {};
  /// At the initiator: every send function that takes part is known to its worker.
  bool finished = false;
};

/// Finds, before the first gradient moves, which send functions a pass will reach on which worker.
/// A state machine without I/O: it is told what walking the local graph reached, and says whom to
/// ask on.
///
/// | state | event | next | sends |
/// |---|---|---|---|
/// | initiator | start, roots reach other workers | waiting | discover to each of them |
/// | initiator | start, roots reach nobody | finished | - |
/// | any | discover, expansion reaches nobody, not engaged | same | discovered |
/// | not engaged | discover, expansion reaches others | engaged by its sender | discover to each |
/// | engaged, initiator | discover | same | discover to each; discovered at once |
/// | engaged | discovered, the last one awaited | not engaged | discovered to who engaged it |
/// | initiator | discovered, the last one awaited | finished | - |
/// | any | what came before, again | same | the same answer, if it was given |
///
/// That is termination detection by Dijkstra and Scholten: those who are engaged form a tree below
/// the initiator, and nobody leaves it who waits for an answer. So when the initiator waits for
/// none, none is on its way anywhere. Each worker is asked at most once per walk, with all that the
/// walk reached there.
/// @threads one thread at a time.
class DiscoveryProtocol {
 public:
  DiscoveryProtocol(WorkerId self, WorkerId initiator) : self_(self), initiator_(initiator) {}

  /// @param reached what the initiator's roots lead to on other workers.
  DiscoveryActions start(Reached reached);

  /// A `Discover` came. @return those of its messages that are new: walk the graph from their send
  /// functions, then call `expanded`.
  std::vector<AutogradMessageId> discover(WorkerId from, std::uint32_t number,
                                          std::vector<AutogradMessageId> const& messages);
  /// @param reached what the walk for this `Discover` led to on other workers.
  DiscoveryActions expanded(WorkerId from, std::uint32_t number, Reached reached);

  /// A `Discovered` came.
  DiscoveryActions discovered(std::uint32_t number, std::set<WorkerId> const& participants);

  bool is_finished() const { return finished_; }
  /// Send functions of this worker that take part.
  std::set<AutogradMessageId> const& active() const { return active_; }
  /// Workers this one asked.
  std::set<WorkerId> const& asked() const { return asked_; }
  /// Workers that take part besides the initiator, as far as is known here; when the initiator is
  /// finished, all of them.
  std::set<WorkerId> const& participants() const { return participants_; }

 private:
  enum class Answer : std::uint8_t { due, deferred, given };
  using Question = std::pair<WorkerId, std::uint32_t>;

  bool is_engaged() const { return self_ == initiator_ || engaged_by_.has_value(); }
  void ask(Reached reached, DiscoveryActions& actions);
  void answer(Question const& question, DiscoveryActions& actions);

  WorkerId self_, initiator_;
  bool finished_ = false;
  std::set<AutogradMessageId> active_;
  std::set<WorkerId> asked_, participants_;
  std::uint32_t last_number_ = 0;
  std::set<std::uint32_t> awaited_;
  std::map<Question, Answer> questions_;
  std::optional<Question> engaged_by_;
};

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/engine/impl/discovery_protocol.ipp>
#endif
