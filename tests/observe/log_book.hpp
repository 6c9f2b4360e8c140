#pragma once
// A sink that keeps what an engine logs, for tests to read.

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include <distgrad/observe/log.hpp>

namespace log_book {

using Fields = std::map<std::string, std::string>;

/// A record that owns what it says; numbers as text.
struct Entry {
  explicit Entry(distgrad::LogRecord const& record)
      : level(record.level),
        time(record.time),
        worker(record.worker),
        component(record.component),
        text(record.text) {
    for (auto const& [key, value] : record.fields) {
      auto const* number = std::get_if<std::uint64_t>(&value);
      auto const& content =
          number ? std::to_string(*number) : std::string(std::get<std::string_view>(value));
      fields.emplace(key, content);
    }
  }

  distgrad::LogLevel level;
  std::chrono::system_clock::time_point time;
  std::string worker, component, text;
  Fields fields;
};

/// Copies share their entries. Any thread.
class LogBook {
 public:
  distgrad::LogSink sink() const {
    return [book = book_](distgrad::LogRecord const& record) {
      std::lock_guard lock(book->mutex);
      book->entries.emplace_back(record);
    };
  }
  std::vector<Entry> all() const {
    std::lock_guard lock(book_->mutex);
    return book_->entries;
  }
  /// Those of one worker that say `text`.
  std::vector<Entry> of(std::string_view worker, std::string_view text) const {
    std::vector<Entry> found;
    for (auto& entry : all()) {
      if (entry.worker == worker && entry.text == text) found.push_back(std::move(entry));
    }
    return found;
  }

 private:
  struct Book {
    std::mutex mutex;
    std::vector<Entry> entries;
  };
  std::shared_ptr<Book> book_ = std::make_shared<Book>();
};

}  // namespace log_book
