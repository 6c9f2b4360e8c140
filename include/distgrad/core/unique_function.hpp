#pragma once
#include <cstddef>
#include <memory>
#include <new>
#include <type_traits>
#include <utility>

namespace distgrad {

template <class Signature>
class unique_function;

/// A callable that can be moved but not copied, so that it may own promises, buffers and tensors.
/// (C++23's `std::move_only_function`; callables up to six pointers are kept inside.)
template <class R, class... Args>
class unique_function<R(Args...)> {
  static constexpr std::size_t inline_bytes = 6 * sizeof(void*);

  struct Operations {
    R (*call)(void*, Args&&...);
    void (*move)(void* to, void* from) noexcept;
    void (*destroy)(void*) noexcept;
  };

  template <class F>
  static constexpr bool fits = sizeof(F) <= inline_bytes && alignof(F) <= alignof(void*) &&
                               std::is_nothrow_move_constructible_v<F>;

  template <class F>
  static constexpr Operations inline_operations = {
      [](void* self, Args&&... args) -> R {
        return (*static_cast<F*>(self))(std::forward<Args>(args)...);
      },
      [](void* to, void* from) noexcept {
        ::new (to) F(std::move(*static_cast<F*>(from)));
        static_cast<F*>(from)->~F();
      },
      [](void* self) noexcept { static_cast<F*>(self)->~F(); }};

  template <class F>
  static constexpr Operations heap_operations = {
      [](void* self, Args&&... args) -> R {
        return (**static_cast<F**>(self))(std::forward<Args>(args)...);
      },
      [](void* to, void* from) noexcept { ::new (to) F*(*static_cast<F**>(from)); },
      [](void* self) noexcept { delete *static_cast<F**>(self); }};

 public:
  unique_function() = default;
  unique_function(std::nullptr_t) {}

  template <class F>
    requires(!std::is_same_v<std::decay_t<F>, unique_function> &&
             std::is_invocable_r_v<R, std::decay_t<F>&, Args...>)
  unique_function(F&& f) {
    using D = std::decay_t<F>;
    if constexpr (fits<D>) {
      ::new (static_cast<void*>(storage_)) D(std::forward<F>(f));
      operations_ = &inline_operations<D>;
    } else {
      ::new (static_cast<void*>(storage_)) D*(new D(std::forward<F>(f)));
      operations_ = &heap_operations<D>;
    }
  }

  unique_function(unique_function&& other) noexcept { take(other); }
  unique_function& operator=(unique_function&& other) noexcept {
    if (this != &other) {
      reset();
      take(other);
    }
    return *this;
  }
  ~unique_function() { reset(); }

  explicit operator bool() const noexcept { return operations_ != nullptr; }

  R operator()(Args... args) { return operations_->call(storage_, std::forward<Args>(args)...); }

 private:
  void reset() noexcept {
    if (operations_) std::exchange(operations_, nullptr)->destroy(storage_);
  }
  void take(unique_function& other) noexcept {
    operations_ = std::exchange(other.operations_, nullptr);
    if (operations_) operations_->move(storage_, other.storage_);
  }

  alignas(void*) std::byte storage_[inline_bytes];
  Operations const* operations_ = nullptr;
};

}  // namespace distgrad
