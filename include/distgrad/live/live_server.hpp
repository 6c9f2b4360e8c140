#pragma once
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include <distgrad/live/detail/group_question.hpp>
#include <distgrad/live/detail/http_server.hpp>
#include <distgrad/live/live_page.hpp>
#include <distgrad/observe/prometheus.hpp>

namespace distgrad {

/// What a `LiveServer` is made with.
struct LiveServerOptions {
  /// Address of the interface to listen on. Whoever can reach it sees everything below; there is
  /// no password and no encryption.
  std::string bind_address = "127.0.0.1";
  /// 0: a free one, chosen by the kernel.
  std::uint16_t port = 0;
  /// Also answers requests that call this server by a name, as a reverse proxy may. Otherwise only
  /// an address or "localhost" is taken, so that no other page in a browser can read what is shown.
  bool accepts_any_host = false;
  /// Others wait until one ends.
  std::size_t max_connections = 64;
  /// For a request to arrive, for an answer to leave, and for a connection without either.
  std::chrono::milliseconds timeout{10000};
};

/// Shows a running job to a browser and to monitoring: one page for the whole group, Prometheus
/// text, and JSON. It has a thread of its own and only reads, so that it answers while the engine
/// is busy, and nothing that arrives here can change anything.
///
///     distgrad::TcpEngine engine({.name = "trainer", .metrics = true});
///     distgrad::LiveServer live(engine, {.port = 8080});      // http://127.0.0.1:8080/
///
/// | path | answer |
/// |---|---|
/// | `/` | the page |
/// | `/metrics` | this worker's counters, for Prometheus |
/// | `/healthz` | 200 while the engine serves, 503 afterwards |
/// | `/api/workers`, `/api/routes` | the group; traffic by peer, with endpoints |
/// | `/api/contexts`, `/api/passes`, `/api/rrefs`, `/api/functions` | this worker's own |
/// | `/api/group` | the state of every worker |
/// | `/api/graph?context=ID` | every worker's part of the graph of a context |
///
/// The last two ask the other workers by ordinary calls, which are counted like any; nothing is
/// asked while nobody looks. The others need `EngineOptions::metrics` too, but no server.
/// @threads any.
class LiveServer {
 public:
  using Options = LiveServerOptions;

  /// @param worker must outlive the server.
  /// @throws Error `invalid_argument` for an address that is none; `address_in_use`.
  explicit LiveServer(Worker const& worker, Options const& options = {})
      : worker_(worker),
        group_(std::make_shared<GroupCache>()),
        server_(options.bind_address, options.port, limits(options),
                [this](detail::HttpQuestion const& question, detail::HttpReply reply) {
                  answer(question, std::move(reply));
                }) {}

  std::uint16_t port() const { return server_.endpoint().port(); }
  /// Where a browser on this host finds the page.
  std::string url() const {
    auto const at = server_.endpoint();
    auto const address = at.address().is_unspecified() ? std::string("127.0.0.1")
                         : at.address().is_v6()        ? "[" + at.address().to_string() + "]"
                                                       : at.address().to_string();
    return "http://" + address + ":" + std::to_string(at.port()) + "/";
  }

 private:
  using Reply = detail::HttpReply;

  /// Questions to the whole group while one is under way share its answer.
  struct GroupCache {
    std::mutex mutex;
    std::vector<Reply> waiting;
  };

  static detail::HttpLimits limits(Options const& options) {
    detail::HttpLimits limits;
    limits.max_connections = options.max_connections;
    limits.timeout = options.timeout;
    limits.checks_host = !options.accepts_any_host;
    return limits;
  }
  static detail::HttpAnswer json(std::string text) {
    return {200, "application/json", std::move(text)};
  }

  /// Called on the server's thread.
  void answer(detail::HttpQuestion const& question, Reply reply) {
    try {
      if (question.path == "/api/group") return answer_group(std::move(reply));
      if (question.path == "/api/graph") return answer_graph(question, std::move(reply));
      reply(answer_here(question.path));
    } catch (Error const& error) {
      bool const is_ours = error.code() == errc::not_supported;
      reply({is_ours ? 404u : 503u, "text/plain; charset=utf-8", error.text() + "\n"});
    } catch (std::exception const& error) {
      reply({500, "text/plain; charset=utf-8", std::string(error.what()) + "\n"});
    }
  }

  /// What this worker knows by itself.
  detail::HttpAnswer answer_here(std::string const& path) {
    detail::WorkerState state(worker_);
    if (path == "/") return {200, "text/html; charset=utf-8", std::string(live_page)};
    if (path == "/metrics")
      return {200, std::string(prometheus_content_type), worker_.metrics_text()};
    if (path == "/healthz") return health();
    if (path == "/api/workers") return json(state.workers());
    if (path == "/api/contexts") return json(state.contexts());
    if (path == "/api/passes") return json(state.passes());
    if (path == "/api/rrefs") return json(state.rrefs());
    if (path == "/api/routes") return json(state.routes());
    if (path == "/api/functions") return json(state.functions());
    return {404, "text/plain; charset=utf-8",
            "there is /, /metrics, /healthz, and /api/ with workers, contexts, passes, rrefs, "
            "routes, functions, group and graph\n"};
  }
  detail::HttpAnswer health() const {
    bool const serves = worker_.is_running();
    return {serves ? 200u : 503u, "text/plain; charset=utf-8", serves ? "ok\n" : "stopped\n"};
  }

  void answer_group(Reply reply) {
    auto own = detail::WorkerState(worker_).whole();
    {
      std::lock_guard lock(group_->mutex);
      group_->waiting.push_back(std::move(reply));
      if (group_->waiting.size() > 1) return;
    }
    auto const question =
        std::make_shared<detail::GroupQuestion>(worker_, [group = group_](std::string const& text) {
          std::unique_lock lock(group->mutex);
          auto const waiting = std::exchange(group->waiting, {});
          lock.unlock();
          for (auto const& one : waiting) one(json(text));
        });
    question->start(std::move(own), [this](CallTarget const& target) {
      return worker_.rpc_async<detail::LiveState{}>(target);
    });
  }
  void answer_graph(detail::HttpQuestion const& asked, Reply reply) {
    auto const text = asked.parameter("context").value_or("");
    auto const context = detail::context_id_from(text);
    if (!context.is_valid()) {
      return reply({400, "text/plain; charset=utf-8",
                    "'context' is an id from /api/contexts, as 0/12345/67\n"});
    }
    auto const question = std::make_shared<detail::GroupQuestion>(
        worker_, [reply](std::string answer) { reply(json(std::move(answer))); });
    question->start(detail::graph_json(worker_, context), [&](CallTarget const& target) {
      return worker_.rpc_async<detail::LiveGraph{}>(target, text);
    });
  }

  Worker const& worker_;
  std::shared_ptr<GroupCache> group_;
  detail::HttpServer server_;  // last: its thread uses the rest
};

}  // namespace distgrad
