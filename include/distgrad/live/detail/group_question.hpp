#pragma once
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/live/worker_state.hpp>

namespace distgrad::detail {

// Asks every worker of the group for a piece of JSON, by ordinary calls, and joins the answers. A
// worker that is busy or gone holds nobody up for longer than the time limit.
class GroupQuestion : public std::enable_shared_from_this<GroupQuestion> {
 public:
  using Done = std::function<void(std::string)>;

  // `done` is called once, on any thread, with
  // {"asked":NAME,"workers":[{"name":...,"asked_us":...,"answered_us":...,"state":{...}}]}; instead
  // of a state there is an "error" where no answer came.
  GroupQuestion(Worker const& worker, Done done)
      : worker_(worker), done_(std::move(done)), answers_(worker.group().size()) {}

  // `own` is this worker's answer; `ask(target)` returns the Future of another's.
  template <class Ask>
  void start(std::string own, Ask ask) {
    answers_[std::size_t(worker_.rank())] = {now_us(), now_us(), std::move(own), {}};
    for (auto const& peer : worker_.group()) {
      if (peer.id != worker_.info().id) ask_one(peer, ask);
    }
    answered();  // this worker
  }

  static std::int64_t now_us() {
    auto const now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
  }

 private:
  struct Answer {
    std::int64_t asked_us = 0, answered_us = 0;
    std::string state, error;
  };

  template <class Ask>
  void ask_one(WorkerInfo const& peer, Ask& ask) {
    auto& answer = answers_[peer.id.value];
    answer.asked_us = now_us();
    try {
      Future<std::string> const future = ask(within(std::chrono::seconds(1), peer.id));
      future.on_ready([self = shared_from_this(), future, &answer] {
        answer.answered_us = now_us();
        if (auto const error = future.error()) {
          answer.error = describe(error).text;
        } else {
          answer.state = std::move(future.get());
        }
        self->answered();
      });
    } catch (std::exception const& error) {  // the engine ends
      answer.error = error.what();
      answered();
    }
  }

  void answered() {
    if (left_.fetch_sub(1) != 1) return;
    JsonWriter json;
    json.object([&] {
      json.member("asked", worker_.name());
      json.array("workers", [&] {
        for (auto const& peer : worker_.group()) write(json, peer, answers_[peer.id.value]);
      });
    });
    std::exchange(done_, nullptr)(json.take());
  }
  static void write(JsonWriter& json, WorkerInfo const& peer, Answer const& answer) {
    json.object([&] {
      json.member("name", peer.name);
      json.member("asked_us", answer.asked_us);
      json.member("answered_us", answer.answered_us);
      if (!answer.error.empty()) return json.member("error", answer.error);
      json.member_json("state", answer.state);
    });
  }

  Worker const& worker_;
  Done done_;
  std::vector<Answer> answers_;
  std::atomic<std::size_t> left_{answers_.size()};
};

}  // namespace distgrad::detail
