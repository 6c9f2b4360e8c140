#pragma once
#include <vector>

namespace distgrad {

/// What a codec may ask of the engine that runs it, found by type: a codec of remote references
/// asks for the table of references, and no room below names it.
/// @threads `find` on a shared object once all `add` calls are done.
class Services {
 public:
  /// Offers `service`, which must outlive this object. A later one of the same type replaces it.
  template <class T>
  void add(T& service) {
    for (auto& entry : entries_) {
      if (entry.key == &key<T>) {
        entry.service = &service;
        return;
      }
    }
    entries_.push_back({&key<T>, &service});
  }

  /// The service of exactly that type, or null.
  template <class T>
  T* find() const {
    for (auto const& entry : entries_) {
      if (entry.key == &key<T>) return static_cast<T*>(entry.service);
    }
    return nullptr;
  }

 private:
  // Its address stands for the type. Not const, so that no linker folds two of them together.
  template <class T>
  static inline char key = 0;

  struct Entry {
    void const* key;
    void* service;
  };
  std::vector<Entry> entries_;
};

}  // namespace distgrad
