// What a caller learns when a call fails.
#include "rig.hpp"

#include <ATen/ops/ones.h>

namespace call_errors_tests {

namespace {
namespace call_errors {

using distgrad::errc;
using distgrad::Error;
using distgrad::FrameKind;
using distgrad::RemoteError;
using distgrad::Worker;

at::Tensor add(at::Tensor const& x, at::Tensor const& y) { return x.add(y); }
int fail_with(std::string const& text) { throw std::runtime_error(text); }
int fail_oddly() { throw 42; }
int refuse() { throw Error(errc::refused, "not today"); }
void fail_in_callback_of(int rank) { distgrad::this_worker().rpc_sync<refuse>(rank); }
distgrad::Future<int> fail_later() {
  auto& self = distgrad::this_worker();
  return self.rpc_async<fail_with>(self.rank(), std::string("later"));
}
int answer(int x) { return x + 1; }
int renamed(int x) { return x + 2; }

std::string const name = "worker1";

RemoteError remote_error(auto&& f) {
  try {
    f();
  } catch (RemoteError const& error) {
    return error;
  } catch (std::exception const& other) {
    FAIL_CHECK("another exception: ", other.what());
  }
  FAIL("no RemoteError was thrown");
  throw 0;
}

void check_description(Worker& self) {
  auto const error = remote_error([&] { self.rpc_sync<fail_with>(name, std::string("boom")); });
  CHECK(error.code() == errc::remote_exception);
  CHECK(error.worker() == name);
  CHECK(error.function().ends_with("call_errors::fail_with"));
  CHECK(error.remote_text() == "boom");
  CHECK(error.call().value != 0);
  std::string const what = error.what();
  CHECK(what.find(name) != what.npos);
  CHECK(what.find("fail_with") != what.npos);
  CHECK(what.find("boom") != what.npos);
}

void check_texts(Worker& self) {
  for (std::string const text :
       {"", "two\nlines\tand \"quotes\" '\\' %s %n {}", "na\u00efve \u2603", "\xff\xc0 no UTF-8"}) {
    auto const error = remote_error([&] { self.rpc_sync<fail_with>(name, text); });
    CHECK(error.remote_text() == text);
  }
  std::string const endless(1 << 20, 'x');
  auto const error = remote_error([&] { self.rpc_sync<fail_with>(name, endless); });
  CHECK(error.remote_text().size() >= 1000);
  CHECK(endless.starts_with(error.remote_text()));  // bounded, and its beginning is what stays
  CHECK(error.remote_text().size() <= distgrad::max_error_text_bytes);
}

void check_kinds(Worker& self) {
  CHECK(remote_error([&] { self.rpc_sync<refuse>(name); }).code() == errc::refused);
  CHECK_FALSE(remote_error([&] { self.rpc_sync<fail_oddly>(name); }).remote_text().empty());
  CHECK(remote_error([&] { self.rpc_sync<fail_later>(name); }).remote_text().find("later") !=
        std::string::npos);
  auto const nested = remote_error([&] { self.rpc_sync<fail_in_callback_of>(name, 0); });
  CHECK(nested.code() == errc::refused);
  CHECK(nested.remote_text().find("worker0") != std::string::npos);
  CHECK(nested.remote_text().find("not today") != std::string::npos);
}

void check_operator_error(Worker& self) {
  auto const error = remote_error([&] { self.rpc_sync<add>(name, at::ones({2}), at::ones({3})); });
  CHECK(error.code() == errc::remote_exception);
  CHECK(error.remote_text().find("size of tensor") != std::string::npos);
}

void check_futures_and_references(Worker& self) {
  auto const future = self.rpc_async<fail_with>(name, std::string("async"));
  CHECK(remote_error([&] { future.get(); }).remote_text() == "async");
  CHECK(remote_error([&] { future.get(); }).remote_text() == "async");  // the same again
  CHECK(future.is_ready());
  CHECK(future.error() != nullptr);
  auto const rref = self.remote<fail_with>(name, std::string("remote"));
  CHECK(rig::text_of([&] { rref.to_here(); }).find("remote") != std::string::npos);
}

/// A call as a peer of another program might send it.
std::exception_ptr raw_call(Worker& self, std::string const& function, std::uint64_t signature) {
  auto const any = self.make_rref(0);
  auto& agent = any.handle().table().agent();
  distgrad::Draft draft(self.find(name).id, agent.services());
  draft.prefix().text(function);
  draft.prefix().number(signature);
  draft.value(1);
  distgrad::Promise<void> promise;
  auto const done = promise.future();
  agent.send_call(
      FrameKind::call, "raw call", {}, std::move(draft),
      [promise = std::move(promise)](std::exception_ptr error, distgrad::Decoder*) mutable {
        error ? promise.set_error(error) : promise.set_value();
      });
  REQUIRE(done.wait_for(std::chrono::seconds(30)));
  return done.error();
}

void check_unknown_function(Worker& self) {
  self.rpc_sync<answer>(name, 1);
  auto const& known = distgrad::detail::Registered<answer>::function.entry;
  CHECK(raw_call(self, known.name, known.signature) == nullptr);

  auto misspelt = known.name;
  std::swap(misspelt[misspelt.size() - 1], misspelt[misspelt.size() - 2]);
  auto const unknown =
      remote_error([&] { std::rethrow_exception(raw_call(self, misspelt, known.signature)); });
  CHECK(unknown.code() == errc::unknown_function);
  CHECK(unknown.worker() == name);
  CHECK(unknown.remote_text().find(misspelt) != std::string::npos);
  CHECK(unknown.remote_text().find("'" + known.name + "'") != std::string::npos);

  for (std::string const& odd : {std::string(), std::string(200000, 'x'), std::string("a\0b", 3)}) {
    auto const error = remote_error([&] { std::rethrow_exception(raw_call(self, odd, 0)); });
    CHECK(error.code() == errc::unknown_function);
  }
}

void check_signature(Worker& self) {
  auto const& known = distgrad::detail::Registered<answer>::function.entry;
  auto const error = remote_error(
      [&] { std::rethrow_exception(raw_call(self, known.name, known.signature + 1)); });
  CHECK(error.code() == errc::signature_mismatch);
  CHECK(error.remote_text().find(known.name) != std::string::npos);
}

void check_definitions(Worker& self, Worker& callee) {
  self.define<"call_errors/renamed v1", renamed>();
  auto const error = remote_error([&] { self.rpc_sync<renamed>(name, 1); });
  CHECK(error.code() == errc::unknown_function);
  CHECK(error.remote_text().find("call_errors/renamed v1") != std::string::npos);
  callee.define<"call_errors/renamed v1", renamed>();
  CHECK(self.rpc_sync<renamed>(name, 1) == 3);
  CHECK(callee.rpc_sync<renamed>("worker0", 1) == 3);
  CHECK(rig::error_of([&] { self.define<"call_errors/renamed v1", answer>(); }) ==
        errc::invalid_argument);
}

void check_still_works(Worker& self) {
  CHECK(self.rpc_sync<answer>(name, 1) == 2);
  CHECK(self.debug_info().pending_calls == 0);
  CHECK(self.debug_info().call_deadlines == 0);
}

}  // namespace call_errors
}  // namespace

TEST_CASE_TEMPLATE("[RPC-19] an exception arrives with its worker, function and text", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  call_errors::check_description(cluster[0]);
  call_errors::check_texts(cluster[0]);
  call_errors::check_still_works(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-19] library errors keep their code; foreign and nested ones arrive too",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  call_errors::check_kinds(cluster[0]);
  call_errors::check_futures_and_references(cluster[0]);
  call_errors::check_still_works(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-18] an operator's complaint about its arguments reaches the caller",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  call_errors::check_operator_error(cluster[0]);
  call_errors::check_still_works(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-19] a function the callee lacks is an error that lists near names", Engine,
                   DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  call_errors::check_unknown_function(cluster[0]);
  call_errors::check_signature(cluster[0]);
  call_errors::check_still_works(cluster[0]);
}

TEST_CASE_TEMPLATE("[RPC-19] a name given on one side only is unknown until the other side has it",
                   Engine, DISTGRAD_ENGINES) {
  rig::Cluster<2, Engine> cluster;
  call_errors::check_definitions(cluster[0], cluster[1]);
  call_errors::check_still_works(cluster[0]);
}

}  // namespace call_errors_tests
