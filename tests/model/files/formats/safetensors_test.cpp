// Reading safetensors: the contents of a file are returned, and a malformed file is refused with one line, whatever is wrong.
#include "base/error.h"
#include "base/path_text.h"
#include "model/files/formats/gguf_writer.h"
#include "model/files/formats/safetensors.h"
#include "tests/support/huggingface_files.h"
#include <doctest/doctest.h>
#include <random>

using namespace tq;
using namespace tq::test;

namespace {

std::vector<FileTensor> read(ModelFile& file, const std::string& bytes) {
    const TemporaryFile on_disk(bytes);
    return read_safetensors(file, on_disk.path());
}

// The error of `action` without the path it begins with; "" when there is none.
template <class Action> std::string error_of(const std::filesystem::path& path, Action action) {
    try {
        action();
        return "";
    } catch (const Error& e) {
        const std::string text = e.what(), begin = utf8_text(path);
        CAPTURE(text);
        CHECK(text.starts_with(begin));
        CHECK(text.find('\n') == std::string::npos);
        CHECK(text.size() < 600);
        return text.substr(std::min(text.size(), begin.size()));
    }
}

std::string error_of(const std::string& bytes) {
    const TemporaryFile on_disk(bytes);
    ModelFile file(on_disk.path());
    return error_of(on_disk.path(), [&] { read_safetensors(file, on_disk.path()); });
}

void check_refused(const std::string& error, const std::string& why) {
    CAPTURE(error);
    CAPTURE(why);
    CHECK(error.find(why) != std::string::npos);
}

// Tensors "a" F32 [2, 3], "b" BF16 [4], "c" F16 []: 24 + 8 + 2 bytes.
SafetensorsWriter small_file() {
    SafetensorsWriter w;
    w.add("a", "F32", {2, 3}, std::string(24, 'a'));
    w.add("b", "BF16", {4}, std::string(8, 'b'));
    w.add("c", "F16", {}, std::string(2, 'c'));
    return w;
}

// small_file() after `change` of its header.
template <class Change> std::string changed(Change change) {
    SafetensorsWriter w = small_file();
    change(w.header);
    return error_of(w.bytes());
}

// A directory of two shards and their index.
struct Shards {
    SafetensorsWriter first, second;
    json index{{"metadata", {{"total_size", 34}}}, {"weight_map", json::object()}};
    std::string first_name = "model-00001-of-00002.safetensors", second_name = "model-00002-of-00002.safetensors";

    Shards() {
        first.add("a", "F32", {2, 3}, std::string(24, 'a'));
        second.add("b", "BF16", {4}, std::string(8, 'b'));
        second.add("c", "F16", {}, std::string(2, 'c'));
        index["weight_map"] = {{"a", first_name}, {"b", second_name}, {"c", second_name}};
    }

    std::string error() const {
        const TemporaryDirectory directory;
        if (!first.header.empty()) directory.write(first_name, first.bytes());
        directory.write(second_name, second.bytes());
        directory.write("model.safetensors.index.json", index.dump());
        ModelFile file(directory.path());
        return error_of(directory.path(), [&] { read_safetensors_directory(file, directory.path()); });
    }
};

template <class Change> void check_shards_refused(Change change, const std::string& why) {
    Shards shards;
    change(shards);
    check_refused(shards.error(), why);
}

} // namespace

TEST_CASE("tensors come back, dimensions fastest first, wherever the header ends") {
    for (const size_t padding : {0, 1, 7}) {
        const SafetensorsWriter w = small_file();
        ModelFile file("x");
        const auto tensors = read(file, w.bytes(w.header.dump() + std::string(padding, ' ')));
        REQUIRE(tensors.size() == 3);
        CHECK(tensors[0].name == "a");
        CHECK(tensors[0].type == GgmlType::F32);
        CHECK(tensors[0].ne == std::array<uint64_t, 4>{3, 2, 1, 1});
        CHECK(tensors[1].type == GgmlType::BF16);
        CHECK(tensors[2].ne == std::array<uint64_t, 4>{1, 1, 1, 1});
        CHECK(tensors[2].data.size() == 2);
        for (size_t i = 0; i < 3; ++i)
            for (const std::byte b : tensors[i].data) CHECK(char(b) == "abc"[i]);
    }
}

TEST_CASE("metadata, tensors without elements and files without tensors are part of the format") {
    SafetensorsWriter w = small_file();
    w.header["__metadata__"] = {{"format", "pt"}};
    w.add("empty", "F32", {0, 5}, "");
    ModelFile file("x");
    CHECK(read(file, w.bytes()).size() == 4);
    CHECK(read(file, SafetensorsWriter().bytes()).empty());
}

TEST_CASE("the slowest dimensions of a tensor of more than four become one") {
    SafetensorsWriter w;
    w.add("v", "F32", {3, 2, 1, 2, 2}, std::string(96, 'v')); // as the filters of a vision tower's patches
    ModelFile file("x");
    const auto tensors = read(file, w.bytes());
    CHECK(tensors.at(0).ne == std::array<uint64_t, 4>{2, 2, 1, 6});
    CHECK(tensors.at(0).data.size() == 96);
}

TEST_CASE("48 layers of 512 experts with each matrix by itself are read") {
    constexpr uint64_t matrices = 48 * 512 * 3; // as Qwen3-Next-80B-A3B
    json header = json::object(), map = json::object();
    for (uint64_t i = 0; i < matrices; ++i) {
        const std::string name = fmt::format("model.layers.{}.mlp.experts.{}.{}_proj.weight", i / 1536, i / 3 % 512, i % 3);
        header[name] = {{"dtype", "BF16"}, {"shape", {1}}, {"data_offsets", {2 * i, 2 * i + 2}}};
        map[name] = "model-00001-of-00001.safetensors";
    }
    SafetensorsWriter w;
    w.data.assign(2 * matrices, 'e');
    const TemporaryDirectory directory;
    directory.write("model-00001-of-00001.safetensors", w.bytes(header.dump()));
    directory.write("model.safetensors.index.json", json{{"weight_map", map}}.dump());
    ModelFile file(directory.path());
    CHECK(read_safetensors_directory(file, directory.path()).size() == matrices);
}

TEST_CASE("a header that does not hold is refused by tensor and number") {
    struct Case {
        const char *key, *member;
        json value;
        const char* why;
    };
    const std::vector<Case> cases{
        {"a", "dtype", "F31", ": tensor 'a': its dtype 'F31' does not exist"},
        {"a", "dtype", 3, "its 'dtype' is an integer, not a text"},
        {"a", "dtype", "I32", "its dtype is I32; tq-run runs F32, F16 and BF16"},
        {"a", "dtype", "F16", "6 elements of F16 need 96 bits, but its data_offsets span 24 bytes"},
        {"a", "dtype", "F4", "need 24 bits"},
        {"a", "shape", "2", "its 'shape' is a text, not a list"},
        {"a", "shape", {2, -3}, "its 'shape' is not a list of whole numbers"},
        {"a", "shape", {2, 1.5}, "its 'shape' is not a list of whole numbers"},
        {"a", "shape", {2, json::array()}, "nested deeper than 3 levels"},
        {"a", "shape", {1, 2, 1, 2, 3}, "12 elements of F32 need 384 bits"},
        {"a", "shape", {uint64_t(1) << 32, uint64_t(1) << 32}, "more than 2^57 elements"},
        {"a", "shape", {2, 4}, "8 elements of F32 need 256 bits, but its data_offsets span 24 bytes"},
        {"a", "shape", {0, 3}, "0 elements"},
        {"a", "data_offsets", {0, 24, 24}, "3 numbers, not 2"},
        {"a", "data_offsets", {24, 0}, "24 to 0 do not lie in the 34 bytes"},
        {"a", "data_offsets", {16, 40}, "16 to 40 do not lie in the 34 bytes of data: the file is damaged or not whole"},
        {"a", "data_offsets", {-1, 23}, "whole numbers of at least 0"},
        {"a", "data_offsets", {4, 28}, "'a' begins at byte 4 of the data, but the one before it ends at 0: they leave a gap"},
        {"b", "data_offsets", {20, 28}, "'b' begins at byte 20 of the data, but the one before it ends at 24: they overlap"},
        {"a", "stride", 1, "it has an unknown key 'stride'"},
    };
    for (const Case& c : cases) check_refused(changed([&](json& header) { header[c.key][c.member] = c.value; }), c.why);
    for (const char* member : {"dtype", "shape", "data_offsets"})
        check_refused(changed([&](json& header) { header["a"].erase(member); }), fmt::format("its '{}' is missing", member));
    check_refused(changed([](json& header) { header["a"] = 1; }), "it is an integer, not an object");
    check_refused(changed([](json& header) { header.erase("c"); }), "34 bytes of data, but its tensors end at 32");
    check_refused(changed([](json& header) { header["__metadata__"] = 1; }), "'__metadata__' is an integer");
    check_refused(changed([](json& header) { header["__metadata__"] = {{"k", 1}}; }), "'k' in its '__metadata__' is an integer");
}

TEST_CASE("FP8 releases are told from others") {
    SafetensorsWriter w;
    w.add("w", "F8_E4M3", {8}, std::string(8, 'a'));
    check_refused(error_of(w.bytes()), "this is an FP8 release. Take the release without FP8 in its name");
}

TEST_CASE("text that is no header is refused") {
    const SafetensorsWriter w = small_file();
    check_refused(error_of(w.bytes("")), "does not begin with '{'");
    check_refused(error_of(w.bytes(std::string(" ").append(w.header.dump()))), "does not begin with '{'");
    check_refused(error_of(w.bytes("{\"a\":1,\"a\":2}")), "header: the key 'a' occurs twice");
    check_refused(error_of(w.bytes("{\"a\":{\"dtype\":\"F32\",\"dtype\":\"F16\"}}")), "the key 'dtype' occurs twice");
    check_refused(error_of(w.bytes(std::string("{\"a\":").append(100'000, '['))), "nested deeper than 3 levels");
    check_refused(error_of(w.bytes("{\"a\xFF\":1}")), "it is not JSON");
    check_refused(error_of(w.bytes("{\"a\":1e999}")), "it is not JSON");
    check_refused(error_of(w.bytes("{} {}")), "it is not JSON");
    check_refused(error_of(raw(uint64_t(100'000'001)) + "{}"), "a header of 100000001 bytes; we read at most");
    check_refused(error_of(raw(UINT64_MAX) + "{}"), "a header of 18446744073709551615 bytes");
    check_refused(error_of(raw(uint64_t(1000)) + "{}"), "a header of 1000 bytes, but 2 are left");
}

TEST_CASE("every truncation is refused, and no damaged byte does harm") {
    const std::string bytes = small_file().bytes();
    for (size_t n = 1; n < bytes.size(); ++n) {
        CAPTURE(n);
        CHECK(!error_of(bytes.substr(0, n)).empty());
    }
    CHECK(error_of(bytes).empty());
    CHECK(error_of(bytes + '\0').find("bytes of data, but its tensors end at") != std::string::npos);
    std::mt19937 random(1);
    for (int i = 0; i < 3000; ++i) {
        std::string damaged = bytes;
        damaged[random() % damaged.size()] = char(random());
        error_of(damaged);
    }
}

TEST_CASE("shards without an index are all files whose names begin with model, and others are named") {
    Shards shards;
    const auto read = [&](const std::string& first, const std::string& second) {
        const TemporaryDirectory directory;
        directory.write(first, shards.first.bytes());
        directory.write(second, shards.second.bytes());
        ModelFile file(directory.path());
        return read_safetensors_directory(file, directory.path()).size();
    };
    CHECK(read("model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors") == 3);
    CHECK(read("model.safetensors-00001-of-00002.safetensors", "model.safetensors-00002-of-00002.safetensors") == 3);
    CHECK(read("model1.safetensors", "model_2.safetensors") == 3);
    CHECK_THROWS_WITH_AS(read("consolidated.safetensors", "other.safetensors"),
                         doctest::Contains("the weights are missing; of safetensors there is consolidated.safetensors"), Error);
}

TEST_CASE("shards are read by their index") {
    CHECK(Shards().error().empty());
    const auto refused = [](auto change, const std::string& why) { check_shards_refused(change, why); };
    for (const char* name : {"../model.safetensors", "/etc/model.safetensors", "a\\b.safetensors", "C:x.safetensors",
                             ".safetensors", "model.bin", "", "a/b.safetensors"}) {
        refused([&](Shards& s) { s.index["weight_map"]["a"] = name; }, "not the plain name of a .safetensors file");
    }
    refused([](Shards& s) { s.index["weight_map"]["a"] = std::string("a\0.safetensors", 14); },
            "a\\x00.safetensors', not the plain");
    refused([](Shards& s) { s.index["weight_map"]["a"] = std::string(300, 'a') + ".safetensors"; }, "not the plain name");
    refused([](Shards& s) { s.index["weight_map"]["a"] = 1; }, "the file of tensor 'a' is an integer, not");
    refused([](Shards& s) { s.index["weight_map"]["a"] = "other.safetensors"; },
            "it names the file 'other.safetensors', which is missing");
    refused([](Shards& s) { s.index["weight_map"]["a"] = s.second_name; },
            "tensor 'a' is not in 'model-00002-of-00002.safetensors'");
    refused([](Shards& s) { s.index["weight_map"]["d"] = s.second_name; }, "tensor 'd' is not in");
    refused([](Shards& s) { s.second.add("a", "F16", {1}, "aa"); }, "tensor 'a' is in 'model-00001-of-00002.safetensors' and in");
    refused([](Shards& s) { s.first.header = json::object(); }, "which is missing from its directory");
    refused([](Shards& s) { s.index.erase("weight_map"); }, "no object 'weight_map'");
    refused([](Shards& s) { s.index["weight_map"] = json::array(); }, "no object 'weight_map'");
    refused([](Shards& s) { s.index = json::array(); }, "no object 'weight_map'");
    refused([](Shards& s) { s.index["weight_map"] = json::object(); }, "names no files");
}

TEST_CASE("an index may name tensors that nothing needs") {
    Shards shards;
    shards.index["weight_map"]["lm_head.weight"] = shards.second_name;
    shards.index["weight_map"]["model.layers.0.self_attn.rotary_emb.inv_freq"] = shards.first_name;
    CHECK(shards.error().empty());
    shards.index["weight_map"]["lm_head.weight"] = "model-00003-of-00003.safetensors";
    CHECK(shards.error().empty());
    shards.index["weight_map"]["d"] = "model-00003-of-00003.safetensors";
    check_refused(shards.error(), "it names the file 'model-00003-of-00003.safetensors', which is missing");
}

TEST_CASE("shards without an index are read by their names") {
    const Shards shards;
    const TemporaryDirectory directory;
    directory.write(shards.first_name, shards.first.bytes());
    directory.write(shards.second_name, shards.second.bytes());
    directory.write("adapter.safetensors", "no tensors");
    ModelFile file(directory.path());
    CHECK(read_safetensors_directory(file, directory.path()).size() == 3);
    directory.write("model-00003-of-00003.safetensors", shards.second.bytes());
    check_refused(error_of(directory.path(), [&] { read_safetensors_directory(file, directory.path()); }),
                  "tensor 'b' is in 'model-00002-of-00002.safetensors' and in 'model-00003-of-00003.safetensors'");
}

TEST_CASE("a pointer of Git LFS is told from safetensors") {
    check_refused(error_of("version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n"),
                  "it is not the file itself, but Git LFS's pointer to it: run git lfs pull");
}

TEST_CASE("a directory without safetensors says what it has") {
    const TemporaryDirectory directory;
    ModelFile file(directory.path());
    const auto error = [&] { return error_of(directory.path(), [&] { read_safetensors_directory(file, directory.path()); }); };
    check_refused(error(), "neither model.safetensors nor model.safetensors.index.json");
    directory.write("pytorch_model.bin", "PK");
    check_refused(error(), "its weights are PyTorch files (pytorch_model.bin)");
}
