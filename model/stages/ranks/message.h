// Values in the bytes of a message between ranks, one after the other, as they are in memory: ranks run the same build.
#pragma once
#include "base/error.h"
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace tq {

// Does a request, and returns why it failed, for rank 0 to say; nothing if it did not.
template <class Work> std::optional<std::string> failure_of(Work&& work) {
    try {
        work();
        return std::nullopt;
    } catch (const std::bad_alloc&) {
        return "out of memory";
    } catch (const std::exception& error) {
        return error.what();
    }
}

class MessageWriter {
  public:
    template <class T> void add(const T& value) {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T>);
        append(&value, sizeof(T));
    }
    template <class T> void add_list(std::span<const T> values) {
        add(uint64_t(values.size()));
        append(values.data(), values.size_bytes());
    }
    void add_bytes(std::span<const std::byte> bytes) { append(bytes.data(), bytes.size()); } // without their number
    void add_text(std::string_view text) { add_list(std::span<const char>(text.data(), text.size())); }

    std::span<const std::byte> bytes() const { return bytes_; }

  private:
    void append(const void* from, size_t size); // not inline: gcc 12 then warns of a vector that is too small

    std::vector<std::byte> bytes_;
};

// Throws Error if the message ends before a value does.
class MessageReader {
  public:
    explicit MessageReader(std::vector<std::byte> bytes) : bytes_(std::move(bytes)) {}

    template <class T> T get() {
        static_assert(std::is_trivially_copyable_v<T> && !std::is_pointer_v<T> && !std::is_same_v<T, bool>);
        T value;
        std::memcpy(&value, take(sizeof(T)).data(), sizeof(T));
        return value;
    }
    bool flag() { return number_below(2, get<uint8_t>(), "flag") != 0; }
    // Reads one of the `count` values, from 0 on, of an enumeration. `what`: its name for the Error.
    template <class Enum> Enum one_of(uint64_t count, const char* what) {
        return Enum(number_below(count, uint64_t(get<std::underlying_type_t<Enum>>()), what));
    }
    // Reads a list into `to`, which must have its length.
    template <class T> void get_list(std::span<T> to) {
        const std::span<const std::byte> from = take_list(sizeof(T));
        if (from.size() != to.size_bytes())
            fail("a message between ranks has a list of {} bytes in place of {}", from.size(), to.size_bytes());
        if (!from.empty()) std::memcpy(to.data(), from.data(), from.size());
    }
    template <class T> std::vector<T> list() {
        const std::span<const std::byte> from = take_list(sizeof(T));
        std::vector<T> values(from.size() / sizeof(T));
        if (!from.empty()) std::memcpy(values.data(), from.data(), from.size());
        return values;
    }
    std::string text() {
        const std::vector<char> all = list<char>();
        return {all.begin(), all.end()};
    }

    size_t size() const { return bytes_.size(); }

  private:
    static uint64_t number_below(uint64_t count, uint64_t number, const char* what) {
        if (number >= count) fail("a message between ranks has {} {}, of which there are 0 to {}", what, number, count - 1);
        return number;
    }
    std::span<const std::byte> take(uint64_t size) {
        if (size > bytes_.size() - at_) fail("a message between ranks ends after {} bytes, too early", bytes_.size());
        const auto out = std::span<const std::byte>(bytes_).subspan(at_, size_t(size));
        at_ += size_t(size);
        return out;
    }
    std::span<const std::byte> take_list(size_t value_size) {
        const auto count = get<uint64_t>();
        if (count > bytes_.size() / value_size) fail("a message between ranks has a list of {} values, too many", count);
        return take(count * value_size);
    }

    std::vector<std::byte> bytes_;
    size_t at_ = 0;
};

} // namespace tq
