#include <distgrad/transport/detail/go_back_n.hpp>

#include <doctest/doctest.h>

namespace go_back_n_tests {

namespace {
namespace arq {

using namespace std::chrono_literals;
using namespace distgrad::detail;
using distgrad::Clock;
using distgrad::time_point;
using Answer = GoBackNReceiver::Answer;

time_point const start{std::chrono::hours(1)};

/// Sends all that may be sent. @return their numbers.
std::vector<std::uint32_t> sent(GoBackNSender& sender, time_point now) {
  std::vector<std::uint32_t> numbers;
  while (sender.has_next()) numbers.push_back(sender.next(now).number);
  return numbers;
}

GoBackNSender with_pieces(std::size_t count) {
  GoBackNSender sender(count);
  for (std::size_t i = 0; i < count; ++i) sender.add({}, 1);
  return sender;
}

using Numbers = std::vector<std::uint32_t>;

}  // namespace arq
}  // namespace

using namespace arq;

TEST_CASE("no more pieces are under way than the window has") {
  auto sender = with_pieces(3);
  CHECK_FALSE(sender.has_room());
  CHECK(sent(sender, start) == Numbers{0, 1, 2});
  CHECK(sender.acknowledged(2, start + 1ms) == 2);
  CHECK(sender.has_room());
  sender.add({}, 0);
  CHECK(sent(sender, start + 1ms) == Numbers{3});
  CHECK(sender.acknowledged(4, start + 2ms) == 1);
  CHECK(sender.is_empty());
  CHECK_FALSE(sender.next_deadline());
}

TEST_CASE("an acknowledgement of what was not sent, or twice, is ignored") {
  auto sender = with_pieces(3);
  CHECK(sender.acknowledged(1, start) == 0);
  sender.next(start);
  CHECK(sender.acknowledged(2, start) == 0);
  CHECK(sender.acknowledged(1, start) == 1);
  CHECK(sender.acknowledged(1, start) == 0);
  CHECK(sender.acknowledged(0, start) == 0);
}

TEST_CASE("all from the first missing piece is sent again") {
  auto sender = with_pieces(4);
  sent(sender, start);
  SUBCASE("when the receiver reports a gap") {
    sender.acknowledged(1, start);
    sender.gap_reported(0);  // an old report
    CHECK_FALSE(sender.has_next());
    sender.gap_reported(1);
    CHECK(sent(sender, start) == Numbers{1, 2, 3});
  }
  SUBCASE("when the time is over, which doubles each time") {
    auto now = start;
    auto wait = *sender.next_deadline() - now;
    for (int round = 0; round < 3; ++round, wait *= 2) {
      CHECK_FALSE(sender.tick(now + wait - 1ms));
      CHECK(sender.tick(now + wait));
      now += wait;
      CHECK(sent(sender, now) == Numbers{0, 1, 2, 3});
    }
    CHECK(now - sender.waits_since(now) == now - start);
    sender.acknowledged(1, now);
    CHECK(sender.waits_since(now) == now);
  }
}

TEST_CASE("the time to wait follows the line's round trips") {
  AckTimer timer;
  for (int i = 0; i < 50; ++i) timer.sample(3s);
  CHECK(timer.timeout() >= 3s);
  CHECK(timer.timeout() < 4s);
  for (int i = 0; i < 100; ++i) timer.sample(1us);
  CHECK(timer.timeout() == AckTimer::shortest);
  for (int i = 0; i < 100; ++i) timer.expired();
  CHECK(timer.timeout() == AckTimer::longest);
}

TEST_CASE("a receiver takes the next piece only, and reports a gap once for each time") {
  GoBackNReceiver receiver;
  CHECK(receiver.accept(0));
  CHECK(receiver.answer() == Answer::ack);
  receiver.answered();
  CHECK_FALSE(receiver.accept(2));
  CHECK(receiver.answer() == Answer::gap);
  receiver.answered();
  CHECK_FALSE(receiver.accept(3));
  CHECK(receiver.answer() == Answer::none);
  CHECK_FALSE(receiver.accept(2));  // sent again, and the missing one was lost again
  CHECK(receiver.answer() == Answer::gap);
  CHECK_FALSE(receiver.accept(0));  // its acknowledgement was lost
  CHECK(receiver.answer() == Answer::ack);
  CHECK(receiver.accept(1));
  CHECK(receiver.expected() == 2);
}

}  // namespace go_back_n_tests
