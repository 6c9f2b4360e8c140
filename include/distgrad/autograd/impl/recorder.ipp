#pragma once
#include <c10/core/GradMode.h>

#include <distgrad/autograd/recorder.hpp>

namespace distgrad {
namespace detail {

DISTGRAD_DECL std::vector<at::Tensor> differentiable(ReceivedTensors const& received) {
  std::vector<at::Tensor> wanted;
  for (std::size_t i = 0; i < received.tensors.size(); ++i) {
    if (!received.requires_grad[i]) continue;
    auto const& tensor = received.tensors[i];
    if (!tensor.defined() || !(tensor.is_floating_point() || tensor.is_complex())) {
      throw Error(errc::bad_value, "a tensor that cannot have a gradient is marked to need one");
    }
    wanted.push_back(tensor);
  }
  return wanted;
}

}  // namespace detail

DISTGRAD_DECL Recorder::Recorder(RpcAgent& agent, ContextTable& contexts, IdSource& ids)
    : agent_(agent), contexts_(contexts), ids_(ids) {
  agent_.set_interceptor(this);
  agent_.dispatcher().on(FrameKind::context_release, [this](WorkerId, Message message) {
    Reader in(message.metadata);
    auto const context = in.id<ContextId>();
    if (in.ok()) release(context);
  });
}

DISTGRAD_DECL void Recorder::leaving(CallState const& state, WorkerId to, bool is_call,
                                     std::span<at::Tensor const> tensors, Writer& extends) {
  auto const write = [&](Extension e) { extends.number(static_cast<std::uint8_t>(e)); };
  if (!state) return write(Extension::plain);
  std::vector<at::Tensor> recorded;
  if (c10::GradMode::is_enabled()) {
    for (auto const& tensor : tensors) {
      if (tensor.defined() && tensor.requires_grad()) recorded.push_back(tensor);
    }
  }
  if (recorded.empty() && !is_call) return write(Extension::constants);
  auto& context = *static_cast<DistAutogradContext*>(state.get());
  context.add_known_worker(to);
  write(recorded.empty() ? Extension::context : Extension::recorded);
  extends.id(context.id());
  if (recorded.empty()) return;
  extends.id(record_sent(context, to, recorded));
}

DISTGRAD_DECL AutogradMessageId Recorder::record_sent(DistAutogradContext& context, WorkerId to,
                                                      std::span<at::Tensor const> tensors) {
  auto const message = ids_.next<AutogradMessageId>();
  context.add_send(message, to, tensors);
  return message;
}

DISTGRAD_DECL CallState Recorder::arriving(WorkerId from, bool is_call, ReceivedTensors& received,
                                           Reader& extends) {
  auto const extension = static_cast<Extension>(extends.number<std::uint8_t>());
  if (extension == Extension::plain) {
    for (auto& tensor : detail::differentiable(received)) tensor.set_requires_grad(true);
    return nullptr;
  }
  if (extension != Extension::context && extension != Extension::recorded) return nullptr;
  auto const id = extends.id<ContextId>();
  auto const message =
      extension == Extension::recorded ? extends.id<AutogradMessageId>() : AutogradMessageId{};
  if (!extends.ok()) return nullptr;  // the caller of arriving reports malformed messages
  // An answer may come after its caller closed the context; its tensors are constants then.
  auto context = is_call ? contexts_.get_or_create(id) : contexts_.find(id);
  if (!context || extension == Extension::context) return context;
  auto tensors = detail::differentiable(received);
  if (!tensors.empty()) context->add_recv(message, from, tensors);
  return context;
}

DISTGRAD_DECL CallState Recorder::install(CallState state) {
  return contexts_.install(std::static_pointer_cast<DistAutogradContext>(std::move(state)));
}

DISTGRAD_DECL void Recorder::release(ContextId id) noexcept {
  try {
    auto const context = contexts_.release(id);
    if (!context) return;  // ends the flood where workers know one another
    if (on_release_) on_release_(*context);
    auto const self = agent_.membership().self().id;
    for (auto const worker : context->known_workers()) {
      if (worker == self) continue;
      Writer out;
      out.id(id);
      agent_.host().send(worker,
                         Message{.kind = FrameKind::context_release, .metadata = out.take()});
    }
  } catch (std::exception const& e) {
    agent_.host().log().write(LogLevel::error, "autograd", "a context could not be released",
                              {{"context", to_string(id)}, {"reason", e.what()}});
  }
}

}  // namespace distgrad
