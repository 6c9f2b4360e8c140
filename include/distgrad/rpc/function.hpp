#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>

#include <distgrad/core/future.hpp>
#include <distgrad/rpc/function_name.hpp>
#include <distgrad/serialize/codec.hpp>
#include <distgrad/serialize/keep_on_streams.hpp>

namespace distgrad {

/// A value whose type only its maker knows, with what is needed to send it.
struct ErasedValue {
  std::shared_ptr<void> value;
  /// Address that is the same for equal types.
  void const* type = nullptr;
  /// Name of the type for error texts.
  std::string_view type_name;
  /// Writes `*value`. @throws Error `not_supported` if the type cannot be sent.
  void (*encode)(Encoder& out, void const* value) = nullptr;

  template <class T>
  static ErasedValue of(std::shared_ptr<T> value);
};

/// A function and the arguments it was called with, decoded on the worker that runs it.
class BoundCall {
 public:
  using OnDone = unique_function<void(std::exception_ptr)>;
  virtual ~BoundCall() = default;
  /// Calls the function. `done` is called exactly once: before `run` returns, or later if the
  /// function returns a `Future`. Does not throw.
  virtual void run(OnDone done) noexcept = 0;
  /// After `done(nullptr)`: writes the result.
  virtual void encode_result(Encoder& out) const = 0;
  /// After `done(nullptr)`: the result itself.
  virtual ErasedValue take_result() = 0;
};

/// What a worker knows of a function that may be called.
struct FunctionEntry {
  std::string name;
  /// Hash of the argument and result types; both sides must agree.
  std::uint64_t signature = 0;
  /// Decodes the arguments. @throws Error `bad_value`.
  std::unique_ptr<BoundCall> (*bind)(Decoder& arguments) = nullptr;
};

namespace detail {

template <class T>
struct unwrap_future {
  using type = T;
};
template <class T>
struct unwrap_future<Future<T>> {
  using type = T;
};

template <class C, class R, class... A>
struct CallableShape {
  using Class = C;
  /// What the caller gets: the value inside a returned `Future`, else the returned value.
  using Result = typename unwrap_future<std::remove_cvref_t<R>>::type;
  using Parameters = std::tuple<std::remove_cvref_t<A>...>;
  static constexpr bool returns_future = is_future<std::remove_cvref_t<R>>::value;
  static constexpr bool modifies_arguments =
      ((std::is_lvalue_reference_v<A> && !std::is_const_v<std::remove_reference_t<A>>) || ...);
};

template <class F>
struct Shape : Shape<decltype(&F::operator())> {
  using Class = void;  // a closure has no object of its own that would be shipped
};
template <class R, class... A>
struct Shape<R (*)(A...)> : CallableShape<void, R, A...> {};
template <class R, class... A>
struct Shape<R (*)(A...) noexcept> : CallableShape<void, R, A...> {};
template <class R, class C, class... A>
struct Shape<R (C::*)(A...)> : CallableShape<C, R, A...> {};
template <class R, class C, class... A>
struct Shape<R (C::*)(A...) noexcept> : CallableShape<C, R, A...> {};
template <class R, class C, class... A>
struct Shape<R (C::*)(A...) const> : CallableShape<C const, R, A...> {};
template <class R, class C, class... A>
struct Shape<R (C::*)(A...) const noexcept> : CallableShape<C const, R, A...> {};

template <class T>
constexpr std::uint64_t type_signature() {
  if constexpr (std::is_void_v<T>) {
    return fnv1a("void");
  } else if constexpr (Encodable<T>) {
    return Codec<T>::signature;
  } else {
    return compose_signature("opaque", type_name_hash(type_name<T>()));  // stays on its owner
  }
}

template <class Result, class Parameters>
struct function_signature;
template <class Result, class... P>
struct function_signature<Result, std::tuple<P...>> {
  static constexpr std::uint64_t value =
      compose_signature("function", type_signature<Result>(), type_signature<P>()...);
};

template <class T>
void encode_erased(Encoder& out, void const* value) {
  if constexpr (std::is_void_v<T> || std::is_same_v<T, std::monostate>) {
  } else if constexpr (Encodable<T>) {
    Codec<T>::encode(out, *static_cast<T const*>(value));
  } else {
    throw Error(errc::not_supported, "a value of type '" + std::string(type_name<T>()) +
                                         "' has no Codec and cannot leave its owner; call its "
                                         "member functions through the RRef instead");
  }
}

template <class T>
inline constexpr char type_key = 0;

/// Decodes the parameters `P...` in order.
template <class... P>
std::tuple<P...> decode_arguments(Decoder& in, std::type_identity<std::tuple<P...>>) {
  return std::tuple<P...>{Codec<P>::decode(in)...};
}

/// `BoundCall` of one function.
/// @tparam F a function pointer or a closure without captures.
template <auto F>
class BoundFunction final : public BoundCall {
  using Types = Shape<std::remove_cvref_t<decltype(F)>>;
  using Result = typename Types::Result;
  using Stored = std::conditional_t<std::is_void_v<Result>, std::monostate, Result>;

 public:
  static std::unique_ptr<BoundCall> bind(Decoder& in) {
    return std::make_unique<BoundFunction>(in);
  }

  explicit BoundFunction(Decoder& in)
      : arguments_(decode_arguments(in, std::type_identity<typename Types::Parameters>())) {}

  void run(OnDone done) noexcept override {
    try {
      if constexpr (Types::returns_future) {
        auto future = std::apply(F, std::move(arguments_));
        future.on_ready([this, future, done = std::move(done)]() mutable {
          auto error = future.error();
          if (!error) store([&]() -> decltype(auto) { return future.get(); });
          done(error);
        });
        return;
      } else {
        store([&]() -> decltype(auto) { return std::apply(F, std::move(arguments_)); });
      }
    } catch (...) {
      done(std::current_exception());
      return;
    }
    done(nullptr);
  }

  void encode_result(Encoder& out) const override { encode_erased<Stored>(out, result_.get()); }
  ErasedValue take_result() override { return ErasedValue::of(std::move(result_)); }

 private:
  template <class Call>
  void store(Call&& call) {
    if constexpr (std::is_void_v<Result>) {
      call();
      result_ = std::make_shared<Stored>();
    } else {
      result_ = std::make_shared<Stored>(call());
    }
  }

  typename Types::Parameters arguments_;
  std::shared_ptr<Stored> result_;
};

struct ProgramFunction;
/// The newest function of the program.
std::atomic<ProgramFunction const*>& program_functions();

/// A node of the list of all functions this program can run, linked before `main` starts and
/// never changed afterwards.
struct ProgramFunction {
  explicit ProgramFunction(FunctionEntry e);
  FunctionEntry entry;
  ProgramFunction const* next;
};

template <auto F>
struct Registered {
  using Types = Shape<std::remove_cvref_t<decltype(F)>>;
  static_assert(!Types::modifies_arguments,
                "a function called remotely works on copies of its arguments: take them by value "
                "or by const reference, not by T&");
  static inline ProgramFunction const function{
      FunctionEntry{function_name<F>(),
                    function_signature<typename Types::Result, typename Types::Parameters>::value,
                    &BoundFunction<F>::bind}};
};

}  // namespace detail

template <class T>
ErasedValue ErasedValue::of(std::shared_ptr<T> value) {
  return {std::move(value), &detail::type_key<T>, detail::type_name<T>(),
          &detail::encode_erased<T>};
}

}  // namespace distgrad

#ifndef DISTGRAD_SEPARATE_COMPILATION
#include <distgrad/rpc/impl/function.ipp>
#endif
