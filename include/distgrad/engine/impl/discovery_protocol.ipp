#pragma once
#include <distgrad/engine/discovery_protocol.hpp>

namespace distgrad {

DISTGRAD_DECL DiscoveryActions DiscoveryProtocol::start(Reached reached) {
  DiscoveryActions actions;
  ask(std::move(reached), actions);
  actions.finished = finished_ = awaited_.empty();
  return actions;
}

DISTGRAD_DECL std::vector<AutogradMessageId> DiscoveryProtocol::discover(
    WorkerId from, std::uint32_t number, std::vector<AutogradMessageId> const& messages) {
  std::vector<AutogradMessageId> fresh;
  if (!questions_.try_emplace({from, number}, Answer::due).second) return fresh;
  for (auto const message : messages) {
    if (active_.insert(message).second) fresh.push_back(message);
  }
  return fresh;
}

DISTGRAD_DECL DiscoveryActions DiscoveryProtocol::expanded(WorkerId from, std::uint32_t number,
                                                           Reached reached) {
  DiscoveryActions actions;
  Question const question{from, number};
  auto& state = questions_[question];
  if (state == Answer::deferred) return actions;  // will be given
  // Asks before it answers: the initiator must not see a moment in which nothing is awaited.
  ask(std::move(reached), actions);
  if (!is_engaged() && !awaited_.empty()) {
    state = Answer::deferred;
    engaged_by_ = question;
  } else {
    answer(question, actions);
  }
  return actions;
}

DISTGRAD_DECL DiscoveryActions
DiscoveryProtocol::discovered(std::uint32_t number, std::set<WorkerId> const& participants) {
  DiscoveryActions actions;
  if (awaited_.erase(number) == 0) return actions;  // came before
  participants_.insert(participants.begin(), participants.end());
  participants_.erase(initiator_);
  if (!awaited_.empty()) return actions;
  if (self_ == initiator_) {
    actions.finished = finished_ = true;
  } else if (engaged_by_) {
    answer(*engaged_by_, actions);
    engaged_by_.reset();
  }
  return actions;
}

DISTGRAD_DECL void DiscoveryProtocol::ask(Reached reached, DiscoveryActions& actions) {
  for (auto& [worker, messages] : reached) {
    auto const number = ++last_number_;
    awaited_.insert(number);
    asked_.insert(worker);
    actions.discover.push_back({worker, number, std::move(messages)});
  }
}

DISTGRAD_DECL void DiscoveryProtocol::answer(Question const& question, DiscoveryActions& actions) {
  questions_[question] = Answer::given;
  auto participants = participants_;
  if (self_ != initiator_) participants.insert(self_);
  actions.discovered.push_back({question.first, question.second, std::move(participants)});
}

}  // namespace distgrad
