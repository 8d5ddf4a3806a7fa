// nlohmann's parser as a tokenizer: it calls the builder for each value, and the builder checks the limits before anything is
// stored. open_ is the path from the root to the container that is being filled. Its pointers stay valid, since a container grows
// only while it is the last of the path, and none of its children is on the path then.
// Keys are looked up in a hash map of their own for each open object, as ordered_json compares a new key with all before it,
// which takes quadratic time.
#include "base/json.h"
#include "base/error.h"
#include "base/printable.h"
#include <charconv>
#include <optional>
#include <unordered_map>
#include <vector>

namespace tq {
namespace {

// The SAX handler that nlohmann's parser calls; it builds the value as the events come. Json: json or ordered_json.
template <class Json> class JsonBuilder final : public nlohmann::json_sax<Json> {
  public:
    using Base = nlohmann::json_sax<Json>;
    using typename Base::binary_t, typename Base::number_float_t, typename Base::number_integer_t,
        typename Base::number_unsigned_t, typename Base::string_t;

    JsonBuilder(const std::string& subject, const JsonLimits& limits) : subject_(subject), limits_(limits) {}

    Json take() { return std::move(root_); }

    bool null() override { return add(nullptr); }
    bool boolean(bool value) override { return add(value); }
    bool number_integer(number_integer_t value) override { return add(value); }
    bool number_unsigned(number_unsigned_t value) override { return add(value); }
    bool number_float(number_float_t value, const string_t&) override { return add(value); }
    bool string(string_t& value) override { return add(std::move(value)); }
    bool binary(binary_t&) override { return false; } // JSON has none

    bool start_object(size_t) override {
        open(Json::object());
        keys_.emplace_back();
        return true;
    }
    bool start_array(size_t) override {
        open(Json::array());
        return true;
    }
    bool end_object() override {
        keys_.pop_back();
        return end_array();
    }
    bool end_array() override {
        open_.pop_back();
        return true;
    }

    bool key(string_t& key) override {
        const auto [place, is_new] = keys_.back().emplace(key, keys_.back().size());
        if (!is_new && !limits_.repeated_keys) fail("{}: the key '{}' occurs twice", subject_, printable(key));
        repeated_ = is_new ? SIZE_MAX : place->second;
        key_ = std::move(key);
        return true;
    }

    bool parse_error(size_t, const std::string&, const nlohmann::detail::exception& error) override {
        const std::string_view message = error.what(); // "[json.exception.parse_error.101] parse error at ..."
        fail("{}: it is not JSON: {}", subject_, printable(message.substr(message.find(']') + 2), 200));
    }

  private:
    template <class Value> Json* place(Value&& value) {
        if (++values_ > limits_.max_values) fail("{}: it has more than {} values", subject_, limits_.max_values);
        if (open_.empty()) {
            root_ = std::forward<Value>(value);
            return &root_;
        }
        if (open_.back()->is_array()) {
            auto& list = open_.back()->template get_ref<typename Json::array_t&>();
            return &list.emplace_back(std::forward<Value>(value));
        }
        auto& object = open_.back()->template get_ref<typename Json::object_t&>();
        if constexpr (requires { object.emplace_back(key_, value); }) { // ordered_json, whose emplace() compares with all keys
            if (repeated_ != SIZE_MAX) return &((object.begin() + ptrdiff_t(repeated_))->second = std::forward<Value>(value));
            return &object.emplace_back(std::move(key_), std::forward<Value>(value)).second;
        } else {
            return &object.insert_or_assign(std::move(key_), std::forward<Value>(value)).first->second;
        }
    }
    template <class Value> bool add(Value&& value) {
        place(std::forward<Value>(value));
        return true;
    }
    void open(Json value) {
        if (open_.size() >= limits_.max_depth) fail("{}: it is nested deeper than {} levels", subject_, limits_.max_depth);
        open_.push_back(place(std::move(value)));
    }

    const std::string& subject_;
    const JsonLimits limits_;
    Json root_;
    uint32_t values_ = 0;
    string_t key_;               // of the next value
    size_t repeated_ = SIZE_MAX; // the place in the object of an earlier value with that key
    std::vector<Json*> open_;    // open lists and objects, from the root on; only the last one grows
    std::vector<std::unordered_map<std::string, size_t>> keys_; // of the objects among them, with their places
};

// The code unit that "\ud83d" at the beginning of the text stands for.
std::optional<uint32_t> escaped_unit(std::string_view text) {
    uint32_t unit = 0;
    if (!text.starts_with("\\u") || text.size() < 6) return std::nullopt;
    const auto [end, error] = std::from_chars(text.data() + 2, text.data() + 6, unit, 16);
    return error == std::errc() && end == text.data() + 6 ? std::optional(unit) : std::nullopt;
}

// Replaces the escapes of unpaired surrogates, which occur if a text was cut within a character.
std::string without_lone_surrogates(std::string_view text) {
    std::string out;
    size_t copied = 0;
    for (size_t at = text.find('\\'); at != text.npos; at = text.find('\\', at)) {
        const auto unit = escaped_unit(text.substr(at));
        if (!unit || *unit < 0xD800 || *unit > 0xDFFF) {
            at += 2; // also "\\\\", whose second part escapes nothing
            continue;
        }
        const auto next = escaped_unit(text.substr(at + 6));
        if (*unit < 0xDC00 && next && *next >= 0xDC00 && *next <= 0xDFFF) {
            at += 12;
            continue;
        }
        out.append(text.substr(copied, at - copied)).append("\\ufffd");
        copied = at += 6;
    }
    return out.append(text.substr(copied));
}

} // namespace

template <class Json> Json build_json(std::string_view text, const std::string& subject, const JsonLimits& limits) {
    JsonBuilder<Json> builder(subject, limits);
    std::string paired;
    if (limits.lone_surrogates && (text.find("\\ud") != text.npos || text.find("\\uD") != text.npos))
        text = paired = without_lone_surrogates(text);
    if (!Json::sax_parse(text, &builder)) fail("{}: it is not JSON", subject);
    return builder.take();
}

template nlohmann::json build_json(std::string_view, const std::string&, const JsonLimits&);
template nlohmann::ordered_json build_json(std::string_view, const std::string&, const JsonLimits&);

} // namespace tq
