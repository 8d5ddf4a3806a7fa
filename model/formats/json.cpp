#include "model/formats/json.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/printable.h"
#include <unordered_set>
#include <vector>

namespace tq {
namespace {

using nlohmann::json;

constexpr uint32_t max_values = 1u << 22; // a value takes much more memory than text; tokenizer.json of Qwen3 has some 760,000

// Sees every event of the parser, before the parser builds anything from it.
class Guard {
  public:
    Guard(const std::string& subject, int max_depth) : subject_(subject), max_depth_(max_depth) {}

    bool operator()(int depth, json::parse_event_t event, json& parsed) {
        using Event = json::parse_event_t;
        if (depth >= max_depth_ && (event == Event::object_start || event == Event::array_start))
            fail("{}: it is nested deeper than {} levels", subject_, max_depth_);
        const bool is_value = event == Event::value || event == Event::object_start || event == Event::array_start;
        if (is_value && ++values_ > max_values) fail("{}: it has more than {} values", subject_, max_values);
        if (event == Event::object_start) keys_.emplace_back();
        if (event == Event::object_end) keys_.pop_back();
        if (event == Event::key && !keys_.back().insert(parsed.get<std::string>()).second)
            fail("{}: the key '{}' is there twice", subject_, printable(parsed.get_ref<const std::string&>()));
        return true;
    }

  private:
    const std::string& subject_;
    const int max_depth_;
    uint32_t values_ = 0;
    std::vector<std::unordered_set<std::string>> keys_; // of the objects that are open
};

} // namespace

json read_json(std::string_view text, const std::string& subject, int max_depth) {
    Guard guard(subject, max_depth);
    try {
        return json::parse(text, std::ref(guard));
    } catch (const json::exception& error) {           // a number out of range is no parse_error
        const std::string_view message = error.what(); // "[json.exception.parse_error.101] parse error at ..."
        fail("{}: it is not JSON: {}", subject, printable(message.substr(message.find(']') + 2), 200));
    }
}

json read_json_file(const std::filesystem::path& path, uint64_t max_bytes) {
    return read_json(read_text_file(path, max_bytes), path.string());
}

std::string read_text_file(const std::filesystem::path& path, uint64_t max_bytes) {
    const MappedFile file(path);
    if (file.bytes().size() > max_bytes) {
        fail("{} has {} bytes, more than the {} that such a file has at most", path.string(), file.bytes().size(), max_bytes);
    }
    std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
    if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
    return std::string(text);
}

bool is_there(const std::filesystem::path& path) {
    std::error_code unknown;
    return std::filesystem::exists(path, unknown);
}

const char* kind_of(const json& value) {
    switch (value.type()) {
    case json::value_t::null: return "null";
    case json::value_t::object: return "an object";
    case json::value_t::array: return "a list";
    case json::value_t::string: return "a text";
    case json::value_t::boolean: return "a boolean";
    case json::value_t::number_integer:
    case json::value_t::number_unsigned: return "an integer";
    case json::value_t::number_float: return "a real number";
    default: return "nothing";
    }
}

} // namespace tq
