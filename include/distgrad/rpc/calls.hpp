#pragma once
#include <type_traits>
#include <utility>

#include <boost/asio/associated_executor.hpp>
#include <boost/asio/async_result.hpp>
#include <boost/asio/dispatch.hpp>
#include <boost/asio/executor_work_guard.hpp>

#include <distgrad/rpc/agent.hpp>
#include <distgrad/rpc/call_target.hpp>

namespace distgrad::detail {

template <auto F>
using FunctionShape = Shape<std::remove_cvref_t<decltype(F)>>;
template <auto F>
using CallResult = typename FunctionShape<F>::Result;

template <class Parameters>
inline constexpr std::size_t arity = std::tuple_size_v<Parameters>;

/// Encodes `args` as the parameter types `P...`; compile-time errors name the parameter.
template <class... P, class... Args>
void encode_arguments(Draft& draft, std::type_identity<std::tuple<P...>>, Args const&... args) {
  static_assert(sizeof...(P) == sizeof...(Args), "the function takes another number of arguments");
  static_assert((std::is_convertible_v<Args const&, P> && ...),
                "an argument does not convert to the function's parameter type");
  static_assert((Encodable<P> && ...),
                "a parameter type cannot be sent: specialise distgrad::Codec, or give the type a "
                "distgrad_fields(T&) function");
  [[maybe_unused]] auto const encode = [&]<class Parameter, class Arg>(
                                           std::type_identity<Parameter>, Arg const& arg) {
    if constexpr (std::is_same_v<Parameter, Arg>) {
      draft.value(arg);
    } else {
      draft.value(static_cast<Parameter>(arg));
    }
  };
  (encode(std::type_identity<P>(), args), ...);
}

/// Writes what every request to run a function has: its name, its signature, its arguments.
template <auto F, class... Args>
void write_request(RpcAgent& agent, Draft& draft, Args const&... args) {
  auto const& function = Registered<F>::function;
  draft.prefix().text(agent.registry().name_of(function));
  draft.prefix().number(function.entry.signature);
  encode_arguments(draft, std::type_identity<typename FunctionShape<F>::Parameters>(), args...);
}

template <class R>
void fulfil(Promise<R>& promise, std::exception_ptr error, Decoder* decoder) {
  if (error) {
    promise.set_error(std::move(error));
  } else if constexpr (std::is_void_v<R>) {
    promise.set_value();
  } else {
    auto value = Codec<R>::decode(*decoder);  // a throw becomes the call's error
    if (!values_end(*decoder)) throw Error(errc::bad_value, "the result is malformed");
    promise.set_value(std::move(value));
  }
}

/// @param keep lives until the call is over.
template <auto F, class... Args>
Future<CallResult<F>> call_async_keeping(RpcAgent& agent, CallTarget const& target,
                                         std::shared_ptr<void> keep, Args const&... args) {
  using R = CallResult<F>;
  static_assert(std::is_void_v<R> || Encodable<R>,
                "the function's result cannot be sent; use remote<f>() to keep it on its worker");
  Draft draft(agent.membership().resolve(target.worker()).id, agent.services());
  write_request<F>(agent, draft, args...);
  Promise<R> promise(agent.shared_host());
  auto future = promise.future();
  auto shared = std::make_shared<Promise<R>>(std::move(promise));
  auto const call = agent.send_call(
      FrameKind::call, Registered<F>::function.entry.name, target.timeout(), std::move(draft),
      [shared, keep = std::move(keep)](std::exception_ptr error, Decoder* decoder) {
        fulfil(*shared, std::move(error), decoder);
      });
  shared->on_cancel([&agent, call] { agent.caller().withdraw(call); });
  return future;
}

template <auto F, class... Args>
Future<CallResult<F>> call_async(RpcAgent& agent, CallTarget const& target, Args const&... args) {
  return call_async_keeping<F>(agent, target, nullptr, args...);
}

/// Hands a future's outcome to a handler of signature `void(std::exception_ptr, T)` or
/// `void(std::exception_ptr)`, on the handler's executor if it has one.
template <class T, class Handler>
void complete_with(Future<T> future, Handler handler) {
  auto executor = boost::asio::get_associated_executor(handler);
  auto work = boost::asio::make_work_guard(executor);
  future.on_ready([future, handler = std::move(handler), work = std::move(work)]() mutable {
    auto const on = work.get_executor();
    boost::asio::dispatch(on, [future, handler = std::move(handler)]() mutable {
      auto error = future.error();
      if constexpr (std::is_void_v<T>) {
        std::move(handler)(std::move(error));
      } else {
        std::move(handler)(error, error ? T() : std::move(future.get()));
      }
    });
  });
}

template <class T>
struct completion_signature {
  using type = void(std::exception_ptr, T);
};
template <>
struct completion_signature<void> {
  using type = void(std::exception_ptr);
};

template <class T, class Token>
auto async_complete(Future<T> future, Token&& token) {
  using Signature = typename completion_signature<T>::type;
  return boost::asio::async_initiate<Token, Signature>(
      [](auto handler, Future<T> f) { complete_with<T>(std::move(f), std::move(handler)); }, token,
      std::move(future));
}

}  // namespace distgrad::detail
