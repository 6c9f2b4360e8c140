#include "torch_peer.hpp"

// The build defines DISTGRAD_BENCH_NO_TENSORPIPE where the headers are there but not the symbols
// (a static libtorch without TensorPipe, some package managers' builds).
#if !defined(DISTGRAD_BENCH_NO_TENSORPIPE) && \
    __has_include(<torch/csrc/distributed/rpc/tensorpipe_agent.h>)
#define DISTGRAD_BENCH_HAS_TENSORPIPE 1
#else
#define DISTGRAD_BENCH_HAS_TENSORPIPE 0
#endif

#if !DISTGRAD_BENCH_HAS_TENSORPIPE

#include <stdexcept>

namespace bench {

struct TorchPeer::State {};

std::string TorchPeer::why_absent() { return "this libtorch was built without TensorPipe"; }
TorchPeer::TorchPeer(int, std::uint16_t, int) { throw std::runtime_error(why_absent()); }
TorchPeer::~TorchPeer() = default;
at::Tensor TorchPeer::echo(at::Tensor const&) { return {}; }
at::Tensor TorchPeer::mul(at::Tensor const&, at::Tensor const&) { return {}; }
at::Tensor TorchPeer::nested(at::Tensor const&, std::int64_t) { return {}; }
TorchPeer::Context::Context() : id_(0) {}
TorchPeer::Context::~Context() = default;
void TorchPeer::Context::backward(std::vector<at::Tensor> const&) {}
at::Tensor TorchPeer::Context::gradient(at::Tensor const&) const { return {}; }

}  // namespace bench

#else

// libtorch's RPC headers are empty without these.
#ifndef USE_DISTRIBUTED
#define USE_DISTRIBUTED 1
#endif
#ifndef USE_RPC
#define USE_RPC 1
#endif
#ifndef USE_TENSORPIPE
#define USE_TENSORPIPE 1
#endif

#include <ATen/core/ivalue.h>
#include <torch/csrc/distributed/rpc/request_callback_no_python.h>
#include <torch/csrc/distributed/rpc/script_call.h>
#include <torch/csrc/distributed/rpc/script_resp.h>
#include <torch/csrc/distributed/rpc/tensorpipe_agent.h>
#include <torch/csrc/distributed/rpc/utils.h>
#include <torch/csrc/jit/runtime/operator.h>
#include <torch/library.h>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/TCPStore.hpp>

#if __has_include(<torch/csrc/distributed/autograd/engine/dist_engine.h>)
#include <torch/csrc/distributed/autograd/context/container.h>
#include <torch/csrc/distributed/autograd/engine/dist_engine.h>
#include <torch/csrc/distributed/autograd/utils.h>
#else
// Debian's package has the symbols and not the headers. Declared is what is called below, no more.
namespace torch::distributed::autograd {
class DistAutogradContext {
 public:
  int64_t contextId() const;
  const c10::Dict<at::Tensor, at::Tensor> getGradients() const;
};
class DistAutogradContainer {
 public:
  static DistAutogradContainer& init(int64_t worker_id);
  static DistAutogradContainer& getInstance();
  const std::shared_ptr<DistAutogradContext> newContext();
  std::shared_ptr<DistAutogradContext> retrieveContext(int64_t context_id);
  void releaseContext(int64_t context_id);
};
class DistEngine {
 public:
  static DistEngine& getInstance();
  void execute(int64_t context_id, std::vector<at::Tensor> const& roots, bool retain_graph);
};
c10::intrusive_ptr<c10::ivalue::Future> sendMessageWithAutograd(
    rpc::RpcAgent& agent, rpc::WorkerInfo const& to, c10::intrusive_ptr<rpc::Message> message,
    bool force_recording, float timeout_seconds, bool without_profiling);
}  // namespace torch::distributed::autograd
#endif

namespace bench {
namespace {

namespace rpc = torch::distributed::rpc;
namespace dist_autograd = torch::distributed::autograd;
using FuturePtr = c10::intrusive_ptr<c10::ivalue::Future>;
using OperatorPtr = std::shared_ptr<torch::jit::Operator>;

constexpr float timeout_seconds = 120;

OperatorPtr find_operator(char const* name, char const* overload = "") {
  auto found = torch::jit::findOperatorFor(c10::OperatorName(name, overload));
  TORCH_CHECK(found, "this libtorch has no operator ", name);
  return found;
}

rpc::WorkerInfo const& other_worker() {
  auto const agent = rpc::RpcAgent::getCurrentRpcAgent();
  return agent->getWorkerInfo(agent->getWorkerInfo().id_ == 0 ? "w1" : "w0");
}

/// Waits for a response of kind `wrapped` and takes the tensor out of it. For a recorded call this
/// is where libtorch attaches the recv function.
at::Tensor tensor_of(FuturePtr const& response, rpc::MessageType wrapped) {
  response->waitAndThrow();
  auto const message = response->value().toCustomClass<rpc::Message>();
  auto const command = rpc::deserializeResponse(*message, wrapped);
  return static_cast<rpc::ScriptResp&>(*command).value().toTensor();
}

at::Tensor call(OperatorPtr const& op, std::vector<c10::IValue> arguments) {
  auto const agent = rpc::RpcAgent::getCurrentRpcAgent();
  auto message = rpc::ScriptCall(op, std::move(arguments)).toMessage();
  return tensor_of(agent->send(other_worker(), std::move(message), timeout_seconds),
                   rpc::MessageType::SCRIPT_RET);
}

at::Tensor call_recorded(OperatorPtr const& op, std::vector<c10::IValue> arguments) {
  auto const agent = rpc::RpcAgent::getCurrentRpcAgent();
  auto message = rpc::ScriptCall(op, std::move(arguments)).toMessage();
  return tensor_of(dist_autograd::sendMessageWithAutograd(
                       *agent, other_worker(), std::move(message), false, timeout_seconds, false),
                   rpc::MessageType::FORWARD_AUTOGRAD_RESP);
}

at::Tensor nested_hop(at::Tensor const& x, std::int64_t hops) {
  auto y = x.mul(1.001);
  if (hops <= 1) return y;
  static OperatorPtr const op = find_operator("aten::distgrad_bench_nested");
  return call_recorded(op, {y, hops - 1});
}

// libtorch calls an operator by name over RPC only if it lives in this namespace.
TORCH_LIBRARY_FRAGMENT(aten, library) {
  library.def("distgrad_bench_nested(Tensor x, int hops) -> Tensor", nested_hop);
}

c10::intrusive_ptr<::c10d::Store> make_store(int rank, std::uint16_t port) {
  ::c10d::TCPStoreOptions options;
  options.port = port;
  options.isServer = rank == 0;
  options.numWorkers = 2;
  options.waitWorkers = false;
  options.timeout = std::chrono::seconds(60);
  auto tcp = c10::make_intrusive<::c10d::TCPStore>("127.0.0.1", options);
  return c10::make_intrusive<::c10d::PrefixStore>("rpc", tcp);
}

// `uv` is TensorPipe's TCP transport, `basic` the channel that sends over the transport itself.
rpc::TensorPipeRpcBackendOptions tcp_options(int threads) {
  using Names = std::remove_const_t<decltype(rpc::TensorPipeRpcBackendOptions::transports)>;
  Names const transports = std::vector<std::string>{"uv"};
  Names const channels = std::vector<std::string>{"basic"};
  return {threads, transports, channels, timeout_seconds, "env://"};
}

// A recorded call carries a dictionary of device names, everything else here is a tensor.
c10::StrongTypePtr resolve_type(c10::QualifiedName const& name) {
  if (name.name().find("Dict") == std::string::npos) return {nullptr, c10::TensorType::get()};
  return {nullptr, c10::DictType::create(c10::StringType::get(), c10::StringType::get())};
}

}  // namespace

struct TorchPeer::State {
  std::shared_ptr<rpc::TensorPipeAgent> agent;
  OperatorPtr alias = find_operator("aten::alias");
  OperatorPtr mul = find_operator("aten::mul", "Tensor");
  OperatorPtr nested = find_operator("aten::distgrad_bench_nested");
};

std::string TorchPeer::why_absent() {
  if (rpc::TensorPipeTransportRegistry()->Has("uv") &&
      rpc::TensorPipeChannelRegistry()->Has("basic"))
    return {};
  return "this libtorch's TensorPipe has no TCP transport";
}

TorchPeer::TorchPeer(int rank, std::uint16_t port, int threads)
    : state_(std::make_unique<State>()) {
  dist_autograd::DistAutogradContainer::init(rank);
  state_->agent = std::make_shared<rpc::TensorPipeAgent>(
      make_store(rank, port), "w" + std::to_string(rank), static_cast<rpc::worker_id_t>(rank), 2,
      tcp_options(threads), std::unordered_map<std::string, rpc::DeviceMap>{},
      std::vector<c10::Device>{}, std::make_unique<rpc::RequestCallbackNoPython>());
  rpc::RpcAgent::setCurrentRpcAgent(state_->agent);
  state_->agent->setTypeResolver(std::make_shared<rpc::TypeResolver>(resolve_type));
  state_->agent->start();
}

TorchPeer::~TorchPeer() {
  state_->agent->join(true);
  state_->agent->shutdown();
  rpc::RpcAgent::setCurrentRpcAgent(nullptr);
}

at::Tensor TorchPeer::echo(at::Tensor const& x) { return call(state_->alias, {x}); }

at::Tensor TorchPeer::mul(at::Tensor const& x, at::Tensor const& y) {
  return call_recorded(state_->mul, {x, y});
}

at::Tensor TorchPeer::nested(at::Tensor const& x, std::int64_t hops) {
  return call_recorded(state_->nested, {x, hops});
}

TorchPeer::Context::Context()
    : id_(dist_autograd::DistAutogradContainer::getInstance().newContext()->contextId()) {}

TorchPeer::Context::~Context() {
  dist_autograd::DistAutogradContainer::getInstance().releaseContext(id_);
}

void TorchPeer::Context::backward(std::vector<at::Tensor> const& roots) {
  dist_autograd::DistEngine::getInstance().execute(id_, roots, false);
}

at::Tensor TorchPeer::Context::gradient(at::Tensor const& leaf) const {
  auto& contexts = dist_autograd::DistAutogradContainer::getInstance();
  return contexts.retrieveContext(id_)->getGradients().at(leaf);
}

}  // namespace bench

#endif
