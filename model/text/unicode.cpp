// UTF-8 by table 3-7 of the Unicode Standard; character classes and normalisation on top of utf8proc's properties.
// Texts come from clients and from models, and may be any bytes. step_utf8() is the one place where bytes become characters: what
// it calls a character has no overlong form, is no surrogate and is at most U+10FFFF. normalize_nfc() takes only texts that it
// has found valid. NFC looks only at stretches that can change. A text is cut before each character that certainly never combines
// with what precedes it (is_nfc_boundary), and a piece of one character is copied. So the work on a piece with marks is bounded
// by that piece.
#include "model/text/unicode.h"
#include "base/ensure.h"
#include <algorithm>
#include <array>
#include <utf8proc.h>
#include <vector>

namespace tq {
namespace {

// The valid continuation of a lead byte: the number of bytes, and the range of the first of them (the others are 80..BF).
struct Follow {
    uint8_t count, low, high;
};

Follow follow(uint8_t lead) {
    if (lead < 0xC2 || lead > 0xF4) return {0, 0, 0};
    if (lead < 0xE0) return {1, 0x80, 0xBF};
    if (lead < 0xF0) return {2, uint8_t(lead == 0xE0 ? 0xA0 : 0x80), uint8_t(lead == 0xED ? 0x9F : 0xBF)};
    return {3, uint8_t(lead == 0xF0 ? 0x90 : 0x80), uint8_t(lead == 0xF4 ? 0x8F : 0xBF)};
}

CharClass classify(char32_t c) {
    if (c == '\r' || c == '\n') return CharClass::newline;
    if ((c >= 0x09 && c <= 0x0D) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 || (c >= 0x2000 && c <= 0x200A) ||
        c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F || c == 0x3000)
        return CharClass::space;
    const utf8proc_category_t category = utf8proc_category(utf8proc_int32_t(c));
    if (category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO) return CharClass::letter;
    if (category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME) return CharClass::mark;
    if (category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO) return CharClass::number;
    return CharClass::other;
}

std::array<CharClass, 128> classify_ascii() {
    std::array<CharClass, 128> classes;
    for (char32_t c = 0; c < 128; ++c) classes[c] = classify(c);
    return classes;
}

// True only for characters that NFC leaves unchanged and that never combine with preceding ones, so that the text may be cut
// before them. Second halves of compositions are marks, Hangul jamo, or belong to scripts of 10000..1CFFF.
bool is_nfc_boundary(char32_t c) {
    if (c < 0x300) return true;
    if ((c >= 0x1100 && c <= 0x11FF) || (c >= 0x10000 && c < 0x1D000)) return false;
    const utf8proc_property_t& property = *utf8proc_get_property(utf8proc_int32_t(c));
    const bool is_mark = property.category >= UTF8PROC_CATEGORY_MN && property.category <= UTF8PROC_CATEGORY_ME;
    const bool decomposes = property.decomp_seqindex != UINT16_MAX && property.decomp_type == 0;
    return !is_mark && !decomposes && property.combining_class == 0;
}

int combining_class(utf8proc_int32_t c) { return utf8proc_get_property(c)->combining_class; }

// utf8proc_NFC's steps, but with a stable sort in place of its exchange sort of marks, which is quadratic on a run of them.
void append_nfc(std::string& out, std::string_view text, std::vector<utf8proc_int32_t>& points) {
    constexpr int longest_decomposition = 4; // code points, of a canonical decomposition (UAX 15, section 9)
    constexpr auto options = utf8proc_option_t(UTF8PROC_STABLE | UTF8PROC_COMPOSE);
    points.clear();
    for (size_t pos = 0; pos < text.size();) {
        const Utf8Step step = step_utf8(text, pos);
        std::array<utf8proc_int32_t, longest_decomposition> parts;
        int last_boundclass = UTF8PROC_BOUNDCLASS_START;
        const auto count = utf8proc_decompose_char(utf8proc_int32_t(step.code_point), parts.data(), longest_decomposition,
                                                   options, &last_boundclass);
        ENSURE(count > 0 && count <= longest_decomposition, "U+{:04X} has {} parts", uint32_t(step.code_point), count);
        points.insert(points.end(), parts.begin(), parts.begin() + count);
        pos += step.length;
    }
    for (auto begin = points.begin(); begin != points.end();) {
        begin = std::find_if(begin, points.end(), [](auto c) { return combining_class(c) != 0; });
        const auto end = std::find_if(begin, points.end(), [](auto c) { return combining_class(c) == 0; });
        std::stable_sort(begin, end, [](auto a, auto b) { return combining_class(a) < combining_class(b); });
        begin = end;
    }
    const auto length = utf8proc_normalize_utf32(points.data(), utf8proc_ssize_t(points.size()), options);
    ENSURE(length >= 0, "utf8proc_normalize_utf32 gave {}", length);
    for (utf8proc_ssize_t i = 0; i < length; ++i) append_utf8(out, char32_t(points[size_t(i)]));
}

} // namespace

Utf8Step step_utf8(std::string_view text, size_t pos) {
    const auto byte = [&](size_t i) { return uint8_t(text[pos + i]); };
    const uint8_t lead = byte(0);
    if (lead < 0x80) return {Utf8Step::Kind::character, 1, lead};
    const Follow rule = follow(lead);
    if (rule.count == 0) return {Utf8Step::Kind::ill_formed, 1, 0};
    char32_t code_point = lead & (0x3Fu >> rule.count);
    for (uint8_t i = 1; i <= rule.count; ++i) {
        if (pos + i >= text.size()) return {Utf8Step::Kind::incomplete, i, 0};
        const uint8_t low = i == 1 ? rule.low : 0x80, high = i == 1 ? rule.high : 0xBF;
        if (byte(i) < low || byte(i) > high) return {Utf8Step::Kind::ill_formed, i, 0};
        code_point = code_point << 6 | (byte(i) & 0x3Fu);
    }
    return {Utf8Step::Kind::character, uint8_t(rule.count + 1), code_point};
}

std::optional<size_t> find_invalid_utf8(std::string_view text) {
    for (size_t pos = 0; pos < text.size();) {
        const Utf8Step step = step_utf8(text, pos);
        if (step.kind != Utf8Step::Kind::character) return pos;
        pos += step.length;
    }
    return std::nullopt;
}

void append_utf8(std::string& out, char32_t c) {
    const auto tail = [&](int shift) { out += char(0x80 | ((c >> shift) & 0x3F)); };
    if (c < 0x80) {
        out += char(c);
    } else if (c < 0x800) {
        out += char(0xC0 | c >> 6);
        tail(0);
    } else if (c < 0x10000) {
        out += char(0xE0 | c >> 12);
        tail(6), tail(0);
    } else {
        out += char(0xF0 | c >> 18);
        tail(12), tail(6), tail(0);
    }
}

CharClass char_class(char32_t code_point) {
    static const std::array<CharClass, 128> ascii = classify_ascii();
    return code_point < 128 ? ascii[code_point] : classify(code_point);
}

std::string_view general_category(char32_t code_point) { return utf8proc_category_string(utf8proc_int32_t(code_point)); }

std::string normalize_nfc(std::string_view text) {
    std::string out;
    out.reserve(text.size());
    std::vector<utf8proc_int32_t> points;
    // Each segment is one boundary character and the run of others after it; only segments with such a run change.
    size_t begin = 0;
    bool alone = true;
    const auto close_segment = [&](size_t end) {
        if (alone)
            out.append(text, begin, end - begin);
        else
            append_nfc(out, text.substr(begin, end - begin), points);
        begin = end;
        alone = true;
    };
    for (size_t pos = 0; pos < text.size();) {
        const Utf8Step step = step_utf8(text, pos);
        if (is_nfc_boundary(step.code_point))
            close_segment(pos);
        else
            alone = false;
        pos += step.length;
    }
    close_segment(text.size());
    return out;
}

} // namespace tq
