#include <distgrad/rref/control_channel.hpp>

#include <doctest/doctest.h>

#include <algorithm>
#include <random>
#include <vector>

namespace control_channel_tests {

using namespace distgrad;

namespace {

RRefControl control(FrameKind kind, std::uint64_t create = 0) {
  RRefControl message;
  message.kind = kind;
  message.create = create;
  return message;
}

}  // namespace

TEST_CASE("messages to a peer are numbered from one and kept until they are answered") {
  ControlChannel channel;
  auto const first = channel.number(control(FrameKind::rref_fork_request));
  auto const second = channel.number(control(FrameKind::rref_child_accept));
  CHECK(first.request == 1);
  CHECK(second.request == 2);
  CHECK(channel.unsettled().size() == 2);
  CHECK(channel.settle(2) == second);
  CHECK(channel.settle(2).request == 0);
  CHECK(channel.settle(7).request == 0);
  CHECK(channel.unsettled().size() == 1);
}

TEST_CASE("a message says below which number everything is answered") {
  ControlChannel channel;
  CHECK(channel.number(control(FrameKind::rref_user_delete)).settled == 1);
  CHECK(channel.number(control(FrameKind::rref_user_delete)).settled == 1);
  channel.settle(2);
  CHECK(channel.number(control(FrameKind::rref_user_delete)).settled == 1);
  channel.settle(1);
  CHECK(channel.number(control(FrameKind::rref_user_delete)).settled == 3);
}

TEST_CASE("the answer to a delete settles the create it cancels") {
  ControlChannel channel;
  auto const create = channel.number(control(FrameKind::rref_create));
  auto const cancel = channel.number(control(FrameKind::rref_user_delete, create.request));
  channel.settle(cancel.request);
  CHECK(channel.unsettled().empty());
}

TEST_CASE("the answer to a fork request leaves the create it names alone") {
  ControlChannel channel;
  auto const create = channel.number(control(FrameKind::rref_create));
  auto const request = channel.number(control(FrameKind::rref_fork_request, create.request));
  channel.settle(request.request);
  CHECK(channel.unsettled().count(create.request) == 1);
}

TEST_CASE("each request is first once, whatever the order of arrival") {
  std::mt19937 random(7);
  for (int run = 0; run < 50; ++run) {
    std::vector<std::uint64_t> requests;
    for (std::uint64_t i = 1; i <= 40; ++i) requests.insert(requests.end(), {i, i});
    std::ranges::shuffle(requests, random);
    ControlChannel channel;
    std::vector<int> firsts(41);
    for (auto const request : requests) firsts[request] += channel.is_first(request, 0);
    CHECK(std::count(firsts.begin() + 1, firsts.end(), 1) == 40);
    CHECK(channel.low() == 41);
    CHECK(channel.done().empty());
  }
}

TEST_CASE("what the sender no longer waits for counts as done") {
  ControlChannel channel;
  CHECK(channel.is_first(9, 5));
  CHECK(channel.is_done(4));
  CHECK_FALSE(channel.is_done(5));
  CHECK(channel.is_done(9));
  CHECK_FALSE(channel.is_first(3, 1));
  CHECK(channel.is_first(5, 5));
  CHECK(channel.low() == 6);
}

TEST_CASE("a request without a number is never first") {
  CHECK_FALSE(ControlChannel().is_first(0, 0));
}

TEST_CASE("a channel that starts over hears its peer from one and counts on itself") {
  ControlChannel channel;
  channel.number(control(FrameKind::rref_user_delete));
  channel.is_first(1, 0);
  channel.is_first(3, 0);
  channel.reset();
  CHECK(channel.unsettled().empty());
  CHECK(channel.is_first(1, 0));
  CHECK(channel.is_first(3, 0));
  CHECK(channel.number(control(FrameKind::rref_user_delete)).request == 2);
}

}  // namespace control_channel_tests
