// Reading GGUF: the contents of a file are returned, and a malformed file is refused with one line, whatever is wrong.
#include "base/error.h"
#include "base/path_text.h"
#include "model/files/formats/gguf.h"
#include "model/files/formats/gguf_writer.h"
#include "model/weights/weights.h"
#include "tests/support/temporary_file.h"
#include <chrono>
#include <cstring>
#include <doctest/doctest.h>
#include <random>

using namespace tq;
using namespace tq::test;

namespace {

using Texts = std::vector<std::string_view>;

// A file with every kind of value and two tensors, small enough to damage everywhere.
GgufWriter small_file() {
    GgufWriter w;
    w.set("general.architecture", "qwen3");
    w.set("u", uint64_t(7));
    w.set("u64", uint64_t(1) << 40);
    w.set("i", int64_t(-7));
    w.set("f", 0.5);
    w.set("b", true);
    w.set("texts", Texts{"one", "", "three"});
    w.set("ints", std::vector<int64_t>{1, -2});
    w.add_tensor("a", GgmlType::Q8_0, {32, 3});
    w.add_tensor("b", GgmlType::F32, {5});
    return w;
}

// The error of opening `bytes`, without the path; "" when there is none.
std::string error_of(const std::string& bytes) {
    const TemporaryFile file(bytes);
    try {
        read_gguf(file.path());
        return "";
    } catch (const Error& e) {
        const std::string text = e.what(), path = utf8_text(file.path());
        CHECK(text.find(path) != std::string::npos);
        CHECK(text.find('\n') == std::string::npos);
        CHECK(text.size() < 500);
        return text.substr(std::min(text.size(), path.size() + 2));
    }
}

void check_refused(const std::string& bytes, const char* why) {
    const std::string error = error_of(bytes);
    CAPTURE(error);
    CAPTURE(why);
    CHECK(error.find(why) != std::string::npos);
}

const GgufField& field(const std::vector<GgufField>& fields, std::string_view what) {
    for (const GgufField& f : fields) {
        if (f.what == what) return f;
    }
    FAIL("no field " << what);
    return fields.front();
}

// small_file() with one number replaced.
std::string with(std::string_view what, uint64_t value) {
    const GgufWriter w = small_file();
    const auto fields = w.fields();
    const GgufField& f = field(fields, what);
    std::string bytes = w.zeros();
    std::memcpy(bytes.data() + f.position, &value, f.bytes);
    return bytes;
}

} // namespace

TEST_CASE("values and tensors come back") {
    GgufWriter w = small_file();
    w.set("empty", Texts{});
    w.set("floats", std::vector<double>{0.25, -1});
    w.set("big", std::vector<uint64_t>{uint64_t(1) << 33});
    w.set_raw("u8", 0, raw(uint8_t(200)));
    w.set_raw("i8", 1, raw(int8_t(-100)));
    w.set_raw("u16", 2, raw(uint16_t(60000)));
    w.set_raw("i16", 3, raw(int16_t(-30000)));
    w.set_raw("f64", 12, raw(0.1));
    w.set_raw("bools", 9, raw(uint32_t(7)) + raw(uint64_t(2)) + raw(uint16_t(0x0001)));
    const TemporaryFile file(w.zeros());
    const ModelFile g = read_gguf(file.path());
    CHECK(g.text("general.architecture") == "qwen3");
    CHECK(g.integer("u") == 7);
    CHECK(g.integer("u64") == uint64_t(1) << 40);
    CHECK(g.real("f") == 0.5);
    CHECK(g.real("i") == -7);
    CHECK(g.real("f64") == 0.1);
    CHECK(g.boolean("b", false));
    CHECK(g.strings("texts") == Texts{"one", "", "three"});
    CHECK(g.strings("empty").empty());
    CHECK(std::get<std::vector<int64_t>>(*g.find("ints")) == std::vector<int64_t>{1, -2});
    CHECK(std::get<std::vector<double>>(*g.find("floats")) == std::vector<double>{0.25, -1});
    CHECK(std::get<std::vector<uint64_t>>(*g.find("big")) == std::vector<uint64_t>{uint64_t(1) << 33});
    CHECK(std::get<std::vector<uint64_t>>(*g.find("bools")) == std::vector<uint64_t>{1, 0});
    CHECK(g.integer("u8") == 200);
    CHECK(std::get<int64_t>(*g.find("i8")) == -100);
    CHECK(g.integer("u16") == 60000);
    CHECK(std::get<int64_t>(*g.find("i16")) == -30000);
    REQUIRE(g.tensors().size() == 2);
    const FileTensor& a = *g.find_tensor("a");
    CHECK(a.type == GgmlType::Q8_0);
    CHECK(a.ne == std::array<uint64_t, 4>{32, 3, 1, 1});
    CHECK(a.data.size() == 3 * 34);
    CHECK(g.find_tensor("b")->data.data() - a.data.data() == 128);
    CHECK(g.find_tensor("c") == nullptr);
}

TEST_CASE("typed reads name the key and what it is") {
    const TemporaryFile file(small_file().zeros());
    const ModelFile g = read_gguf(file.path());
    CHECK(g.integer("none", 3) == 3);
    CHECK(g.real("none", 3) == 3);
    CHECK(g.text("none", "x") == "x");
    CHECK(g.boolean("none", true));
    const std::string path = utf8_text(file.path());
    const auto throws = [&](auto read, const std::string& why) { CHECK_THROWS_WITH_AS(read(), (path + why).c_str(), Error); };
    throws([&] { return g.integer("none"); }, ": key 'none' is missing");
    throws([&] { return g.integer("i"); }, ": key 'i' is -7, less than 0");
    throws([&] { return g.integer("f", 1); }, ": key 'f' is a real number, not an integer");
    throws([&] { return g.real("b"); }, ": key 'b' is a boolean, not a number");
    throws([&] { return g.text("texts"); }, ": key 'texts' is a list of texts, not a text");
    throws([&] { return g.boolean("u", true); }, ": key 'u' is an unsigned integer, not a boolean");
    throws([&] { return g.strings("ints").size(); }, ": key 'ints' is a list of integers, not a list of texts");
}

TEST_CASE("a moved file keeps its texts and tensors") {
    const TemporaryFile file(small_file().zeros());
    ModelFile a = read_gguf(file.path());
    ModelFile b = std::move(a);
    a = read_gguf(file.path());
    std::swap(a, b);
    CHECK(a.strings("texts")[2] == "three");
    CHECK(b.find_tensor("a")->data.front() == std::byte(0));
}

TEST_CASE("what is no file is refused") {
    CHECK_THROWS_WITH_AS(read_gguf("/nonexistent/x.gguf"), doctest::Contains("cannot open /nonexistent/x.gguf: "), Error);
    const auto directory = utf8_text(std::filesystem::temp_directory_path());
    CHECK_THROWS_WITH_AS(read_gguf(directory), (directory + " is a directory, not a file").c_str(), Error);
    const TemporaryFile empty("");
    CHECK_THROWS_WITH_AS(read_gguf(empty.path()), (utf8_text(empty.path()) + " is empty").c_str(), Error);
}

TEST_CASE("versions") {
    CHECK(error_of(with("version", 2)).empty());
    check_refused(with("version", 1), "version 1 is obsolete");
    check_refused(with("version", 4), "version 4");
    check_refused(with("version", 0), "version 0");
    check_refused(with("version", 3u << 24), "big-endian");
    check_refused(with("magic", 0x46554746), "begins with \"FGUF\"");
    check_refused(with("magic", 0x0a0d0001), "begins with \"\\x01\\x00\\x0d\\x0a\"");
}

TEST_CASE("counts and lengths that the file cannot hold are refused before anything is allocated") {
    for (const uint64_t huge : {uint64_t(10000), uint64_t(1) << 32, uint64_t(1) << 60, uint64_t(1) << 63, ~uint64_t(0)}) {
        check_refused(with("tensor count", huge), "bytes are left");
        check_refused(with("key count", huge), "bytes are left");
        check_refused(with("count of key texts", huge), "bytes are left");
        check_refused(with("count of key ints", huge), "bytes are left");
        check_refused(with("length of key general.architecture", huge), "are left");
        check_refused(with("name length of key u", huge), "are left");
        check_refused(with("first element of key texts", huge), "are left");
        check_refused(with("name length of tensor a", huge), "are left");
    }
}

TEST_CASE("a value may end where the file ends, and not one byte later") {
    const auto file_with = [](uint32_t type, const std::string& value) {
        return "GGUF" + raw(3u) + raw(uint64_t(0)) + raw(uint64_t(1)) + raw(uint64_t(1)) + "k" + raw(type) + value;
    };
    CHECK(error_of(file_with(8, raw(uint64_t(2)) + "ab")).empty());
    check_refused(file_with(8, raw(uint64_t(3)) + "ab"), "key 'k': a text of 3 bytes at byte 45, but 2 are left");
    const std::string three_numbers = raw(10u) + raw(uint64_t(3)) + std::string(24, '\1');
    CHECK(error_of(file_with(9, three_numbers)).empty());
    check_refused(file_with(9, three_numbers.substr(0, 35)), "key 'k': 3 array elements, but 23 bytes are left");
}

TEST_CASE("a file larger than sense is refused by its counts") {
    const auto zeros = [](size_t n) { return std::string(n, '\0'); };
    check_refused("GGUF" + raw(3u) + raw(uint64_t(65537)) + raw(uint64_t(0)) + zeros(65537 * 33), "65537 tensors, more than");
    check_refused("GGUF" + raw(3u) + raw(uint64_t(0)) + raw(uint64_t(65537)) + zeros(65537 * 14), "65537 keys, more than");
    GgufWriter w;
    w.set_raw("bytes", 9, raw(0u) + raw(uint64_t(10) << 20) + zeros(10 << 20));
    w.set_raw("more", 9, raw(0u) + raw(uint64_t(10) << 20) + zeros(10 << 20));
    check_refused(w.zeros(), "key 'more': 10485760 array elements, more than the 6291456 that tq-run reads");
    GgufWriter long_name;
    long_name.set(std::string(65536, 'k'), true);
    check_refused(long_name.zeros(), "65536 bytes, more than 65535");
}

TEST_CASE("wrong types are refused") {
    for (const uint64_t type : {uint64_t(13), uint64_t(0xffffffff)}) {
        check_refused(with("type of key u", type), "does not exist");
        check_refused(with("element type of key texts", type), "does not exist");
        check_refused(with("type of tensor a", type * 19), "is none of ggml's");
    }
    for (const auto& [type, name] : {std::pair(16, "IQ2_XXS"), {21, "IQ3_S"}, {29, "IQ1_M"}, {35, "TQ2_0"}})
        check_refused(with("type of tensor a", uint64_t(type)),
                      (std::string("not a multiple of ") + name + "'s blocks of 256").c_str());
    for (const auto& [type, name] : {std::pair(4, "Q4_2"), {31, "Q4_0_4_4"}, {33, "Q4_0_8_8"}, {38, "IQ4_NL_8_8"}})
        check_refused(with("type of tensor a", uint64_t(type)),
                      (std::string("its weight format is ") + name + ", which ggml has removed; take a file in Q4_0").c_str());
    check_refused(with("type of tensor a", 144), "its weight format is IQ4_KS, which ik_llama.cpp alone runs");
    check_refused(with("type of tensor a", 337), "its weight format is IQ2_K_R4, which ik_llama.cpp alone runs");
    check_refused(with("type of tensor a", 77), "its weight format, type 77, is none of ggml's: forks have formats of their own");
    GgufWriter w;
    w.set_raw("b", 7, "\2");
    check_refused(w.zeros(), "key 'b': a boolean of 2");
}

TEST_CASE("lists of lists are stepped over, and are no value of a key that is read") {
    const auto list = [](uint32_t type, uint64_t count, const std::string& elements) {
        return raw(type) + raw(count) + elements;
    };
    const std::string numbers = list(4, 2, raw(uint32_t(1)) + raw(uint32_t(2))), texts = list(8, 1, raw(uint64_t(2)) + "ab");
    GgufWriter w;
    w.set_raw("some.new.key", 9, list(9, 3, numbers + texts + list(9, 1, numbers)));
    w.set("after", uint64_t(7));
    w.add_tensor("x", GgmlType::F32, {4});
    const TemporaryFile path(w.zeros());
    const ModelFile file = read_gguf(path.path());
    CHECK(file.integer("after") == 7);
    CHECK(file.find_tensor("x"));
    CHECK_THROWS_WITH(file.strings("some.new.key"), doctest::Contains("'some.new.key' is a list of lists, not a list of texts"));
    const auto refused = [](const std::string& bytes, const char* why) {
        GgufWriter damaged;
        damaged.set_raw("k", 9, bytes);
        check_refused(damaged.zeros(), why);
    };
    std::string deep = numbers;
    for (int i = 0; i < 9; i++) deep = list(9, 1, deep);
    refused(deep, "more than 8 levels deep");
    refused(list(9, 1, list(13, 1, "")), "value type 13 does not exist");
    refused(list(9, 1, list(4, 1000, "")), "1000 array elements");
    refused(list(9, 1u << 30, numbers), "array elements");
}

TEST_CASE("a pointer of Git LFS says what to do") {
    check_refused("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n", "run git lfs pull");
}

TEST_CASE("a format that we cannot decode is stepped over, not refused") {
    GgufWriter w;
    w.add_tensor("x", GgmlType(23), {256, 2});
    const TemporaryFile file(w.zeros());
    CHECK(read_gguf(file.path()).find_tensor("x")->data.size() == 2 * 136);
}

TEST_CASE("names are there once and not empty") {
    GgufWriter keys;
    keys.set("twice", true);
    keys.set("twice", uint64_t(1));
    check_refused(keys.zeros(), "key 'twice': it occurs twice");
    GgufWriter tensors;
    tensors.add_tensor("same", GgmlType::F32, {1});
    tensors.add_tensor("other", GgmlType::F32, {1});
    tensors.add_tensor("same", GgmlType::F32, {1});
    check_refused(tensors.zeros(), "tensor 'same': it occurs twice");
    GgufWriter unnamed_key, unnamed_tensor;
    unnamed_key.set("", true);
    check_refused(unnamed_key.zeros(), "key 1 of 1: its name is empty");
    unnamed_tensor.add_tensor("", GgmlType::F32, {1});
    check_refused(unnamed_tensor.zeros(), "tensor 1 of 1: its name is empty");
}

TEST_CASE("a hostile name cannot spoil the message") {
    GgufWriter w;
    w.add_tensor("\x1b[2J\n" + std::string(1000, 'x'), GgmlType::F32, {0});
    const std::string error = error_of(w.zeros());
    CHECK(error.find("tensor '\\x1b[2J\\x0axxx") == 0);
    CHECK(error.find("xxx...': dimension 0 is 0") != std::string::npos);
}

TEST_CASE("dimensions") {
    check_refused(with("dimensions of tensor a", 0), "0 dimensions");
    check_refused(with("dimensions of tensor a", 5), "5 dimensions");
    check_refused(with("dimensions of tensor a", 0xffffffff), "4294967295 dimensions");
    check_refused(with("dimension of tensor a", 0), "dimension 0 is 0");
    check_refused(with("dimension of tensor a", 33), "rows of 33 elements, not a multiple of Q8_0's blocks of 32");
    check_refused(with("dimension of tensor a", uint64_t(1) << 61), "dimension 1 of 3 makes more elements than fit");
    check_refused(with("dimension of tensor a", ~uint64_t(0)), "makes more elements than fit");
    check_refused(with("dimension of tensor b", uint64_t(1) << 62), "do not fit 62 bits");
    check_refused(with("dimension of tensor b", uint64_t(1) << 59), "lie beyond the end of the file");
    check_refused(with("dimension of tensor b", 9), "tensor 'b': its 36 bytes at offset 128");
}

TEST_CASE("the same data for two tensors is refused, in any order") {
    check_refused(with("offset of tensor b", 0), "they overlap");
    check_refused(with("offset of tensor b", 96), "tensor 'b': it begins 96 bytes after 'a', which has 102: they overlap");
    check_refused(with("offset of tensor a", 128), "beyond the end");
    CHECK(error_of(with("dimension of tensor b", 8)).empty());
}

TEST_CASE("offsets") {
    check_refused(with("offset of tensor b", 100), "its offset 100 is not a multiple of the alignment 32");
    for (const uint64_t far : {uint64_t(160), uint64_t(1) << 40, uint64_t(1) << 63, ~uint64_t(31)}) {
        check_refused(with("offset of tensor b", far), "beyond the end");
    }
}

TEST_CASE("alignments") {
    for (const uint64_t alignment : {8, 16, 64, 4096}) {
        GgufWriter w(3, alignment);
        w.set("general.alignment", alignment);
        w.add_tensor("a", GgmlType::F16, {3});
        w.add_tensor("b", GgmlType::F16, {3});
        const TemporaryFile file(w.zeros());
        const ModelFile g = read_gguf(file.path());
        CHECK(uint64_t(g.find_tensor("b")->data.data() - g.find_tensor("a")->data.data()) == alignment);
    }
    for (const uint64_t alignment : {uint64_t(0), uint64_t(1), uint64_t(4), uint64_t(24), uint64_t(1) << 31, uint64_t(1) << 63}) {
        GgufWriter w;
        w.set("general.alignment", alignment);
        check_refused(w.zeros(), "an alignment is a power of two");
    }
}

TEST_CASE("a part of a split model without the others is refused") {
    GgufWriter w;
    w.set_raw("split.count", 2, raw(uint16_t(3)));
    w.set_raw("split.no", 2, raw(uint16_t(1)));
    check_refused(w.zeros(), "it is part 2 of 3 of a split model");
    GgufWriter whole;
    whole.set_raw("split.count", 2, raw(uint16_t(1)));
    CHECK(error_of(whole.zeros()).empty());
}

TEST_CASE("a file cut at any byte is refused") {
    std::string bytes = small_file().zeros();
    bytes.resize(bytes.size() - 12); // tensor b's padding may be missing
    CHECK(error_of(bytes).empty());
    for (size_t n = 1; n < bytes.size(); ++n) {
        CAPTURE(n);
        CHECK(!error_of(bytes.substr(0, n)).empty());
    }
}

TEST_CASE("hostile numbers in every field never crash") {
    const GgufWriter w = small_file();
    const std::string good = w.zeros();
    size_t refused = 0, tried = 0;
    for (const GgufField& f : w.fields()) {
        for (const uint64_t value :
             {uint64_t(0), uint64_t(1), uint64_t(0x7fffffff), uint64_t(0x80000000), uint64_t(0xffffffff), uint64_t(1) << 32,
              uint64_t(1) << 60, (uint64_t(1) << 63) - 1, uint64_t(1) << 63, ~uint64_t(0), ~uint64_t(7), ~uint64_t(31)}) {
            std::string bytes = good;
            std::memcpy(bytes.data() + f.position, &value, f.bytes);
            refused += !error_of(bytes).empty();
            ++tried;
        }
    }
    CHECK(tried > 400);
    CHECK(refused > tried / 2);
}

TEST_CASE("flipped bits and random bytes never crash") {
    const GgufWriter w = small_file();
    const std::string good = w.zeros();
    std::mt19937 random(1);
    size_t refused = 0;
    for (int i = 0; i < 6000; ++i) {
        std::string bytes = good;
        for (uint32_t n = 1 + random() % 4; n > 0; --n) {
            char& byte = bytes[random() % w.header().size()];
            byte = random() % 2 ? char(byte ^ 1 << random() % 8) : char(random());
        }
        refused += !error_of(bytes).empty();
    }
    CHECK(refused > 3000);
    CHECK(refused < 6000); // some damage is to a value or a name, which no reader can detect
}

TEST_CASE("150,000 tokens are read in no time") {
    std::vector<std::string> tokens;
    for (int i = 0; i < 151936; ++i) tokens.push_back("token" + std::to_string(i));
    GgufWriter w;
    w.set("tokenizer.ggml.tokens", Texts(tokens.begin(), tokens.end()));
    const TemporaryFile file(w.zeros());
    const auto begin = std::chrono::steady_clock::now();
    const ModelFile g = read_gguf(file.path());
    const auto elapsed = std::chrono::steady_clock::now() - begin;
    CHECK(g.strings("tokenizer.ggml.tokens").back() == "token151935");
    CHECK(elapsed < std::chrono::seconds(10)); // some milliseconds; a search from the beginning for each would take minutes
}
