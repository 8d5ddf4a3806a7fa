// tq-run quantize: files that it writes run as the models they were made of, are the same bytes however they were written, and
// are never broken ones.
#include "base/half.h"
#include "model/files/formats/gguf_writer.h"
#include "model/files/formats/open.h"
#include "tests/support/child_process.h"
#include "tests/support/huggingface_files.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/test_data.h"
#include "tests/support/text.h"
#include "tests/tools/tq-run/quantized.h"
#include <cstring>
#include <doctest/doctest.h>
#include <fstream>
#include <random>

using namespace tq;
using namespace tq::test;
namespace fs = std::filesystem;

namespace {

const std::string demo = (fs::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf").string();

} // namespace

TEST_CASE("a Hugging Face directory becomes a file with the same logits, tokenizer and recommendations") {
    const Place place;
    const std::string from = test_data("qwen3-tied-hf").string(), to = place.path("out.gguf");
    const std::string report = output(quantize({from, to, "f32"}));
    CHECK(contains(report, "| F32    |"));
    CHECK(contains(report, "0.000"));
    CHECK(logits(to) == logits(from));
    const auto tokens = [](const std::string& model) {
        return output(tq_run({"tokenize", "-m", model, "--text", "<|im_start|>user\nHello, 2024!"}));
    };
    CHECK(tokens(to) == tokens(from));
    const ModelFile made = open_model_file(to), original = open_model_file(from);
    CHECK(made.tensors().size() == original.tensors().size());
    for (const char* key : {"tokenizer.ggml.eos_token_id", "general.sampling.top_k", "qwen3.block_count"})
        CHECK(made.integer(key) == original.integer(key));
    CHECK(std::holds_alternative<double>(*made.find("qwen3.rope.freq_base"))); // also if JSON has an integer
    CHECK(made.integer("qwen3.attention.value_length") == original.integer("qwen3.attention.key_length"));
    CHECK(made.integer("general.file_type") == 0);
    CHECK(!made.find("tie_word_embeddings"));
}

TEST_CASE("Llama's rows of q and k, and Llama 3's scaling of RoPE, as GGUF has them") {
    HuggingFaceFiles files = small_huggingface_model();
    json& config = files.documents["config.json"];
    config["architectures"] = {"LlamaForCausalLM"};
    config["model_type"] = "llama";
    config["rope_scaling"] = {{"rope_type", "llama3"},
                              {"factor", 8.0},
                              {"low_freq_factor", 1.0},
                              {"high_freq_factor", 4.0},
                              {"original_max_position_embeddings", 64}};
    SafetensorsWriter weights;
    std::mt19937 random(1);
    for (const auto& [name, tensor] : files.weights.header.items()) {
        if (contains(name, "q_norm") || contains(name, "k_norm")) continue;
        const std::vector<uint64_t> shape = tensor["shape"];
        std::string bytes;
        for (uint64_t i = 0; i < shape[0] * (shape.size() > 1 ? shape[1] : 1); ++i)
            bytes += raw(uint16_t(0x3d00 + (random() & 0x80ff))); // BF16: 0.03 to 0.12, of either sign
        weights.add(name, "BF16", shape, bytes);
    }
    files.weights = weights;
    const TemporaryDirectory from;
    files.write(from);
    const Place place;
    const std::string to = place.path("out.gguf");
    output(quantize({from.path().string(), to, "F32"}));
    CHECK(logits(to) == logits(from.path().string()));
    const ModelFile made = open_model_file(to);
    CHECK(!made.find("llama.rope.scaling.type"));
    REQUIRE(made.find_tensor("rope_freqs.weight"));
    CHECK(made.find_tensor("rope_freqs.weight")->ne[0] == 32);
    const auto q = [](const ModelFile& file, uint32_t row) { // as F32
        const FileTensor& t = *file.find_tensor("blk.0.attn_q.weight");
        std::vector<float> values(t.ne[0]);
        const uint64_t bytes = row_bytes(t.type, t.ne[0]);
        decode_row(t.type, values, t.data.subspan(row * bytes, bytes));
        return values;
    };
    const ModelFile original = open_model_file(from.path());
    for (const auto& [row, old_row] : {std::pair(0u, 0u), {1u, 32u}, {2u, 1u}, {63u, 63u}})
        CHECK(q(made, row) == q(original, old_row));
}

TEST_CASE("a GGUF file keeps its keys and the tensors that stay in their format") {
    const Place place;
    const std::string to = place.path("out.gguf");
    output(quantize({demo, to, "Q8_0"}));
    CHECK(logits(to) == logits(demo));
    const ModelFile made = open_model_file(to), original = open_model_file(demo);
    for (const auto& [key, value] : original.stored_metadata()) {
        CAPTURE(key);
        if (key == "general.file_type" || key == "general.quantization_version" || key == "general.alignment") continue;
        const auto found = made.stored_metadata().find(key);
        REQUIRE(found != made.stored_metadata().end());
        CHECK(found->second.type == value.type);
        CHECK(found->second.bytes == value.bytes);
    }
}

TEST_CASE("the same bytes for any number of threads, and errors by format") {
    const Place place;
    const std::string f16 = place.path("f16.gguf"), one = place.path("one.gguf"), two = place.path("two.gguf");
    check_refused(quantize({demo, f16, "F16"}), 1, "--allow-requantize");
    output(quantize({demo, f16, "F16", "--allow-requantize"}));
    CHECK(logits(f16) != "");
    const std::string report = output(quantize({f16, one, "Q4_K_M", "1"}));
    CHECK(report == output(quantize({f16, two, "q4_k", "-t", "2"})));
    CHECK(slurp(one) == slurp(two));
    CHECK(contains(report, "rms error, %"));
    CHECK(contains(output(quantize({f16, two, "Q4_0", "--dry-run"})), "bits per weight"));
    CHECK(slurp(one) == slurp(two)); // nothing was written
    const Finished pure = quantize({f16, two, "Q4_0", "--pure", "--overwrite", "--token-embedding-type", "q6_k", "-v"});
    CHECK(pure.status == 0);
    CHECK(contains(pure.error, "blk.0.ffn_up.weight: F16 to Q4_0, rms error"));
    CHECK(fs::file_size(two) < fs::file_size(f16) / 2);
    const std::string upper = place.path("upper.gguf"); // as llama-quantize takes them
    output(quantize({f16, upper, "Q4_0", "--pure", "--token-embedding-type", "Q6_K"}));
    CHECK(slurp(upper) == slurp(two));
}

TEST_CASE("two and three bits, the same bytes for any number of threads") {
    const Place place;
    const std::string one = place.path("one.gguf"), three = place.path("three.gguf");
    uintmax_t size = 0;
    for (const auto& [type, file_type] : {std::pair("Q2_K", 10u), {"Q3_K_S", 11u}, {"Q3_K_M", 12u}, {"Q3_K_L", 13u}}) {
        CAPTURE(type);
        const Finished finished = quantize({demo, one, type, "1", "--allow-requantize", "--overwrite"});
        CHECK(contains(output(finished), type == std::string("Q2_K") ? "| Q2_K " : "| Q3_K "));
        CHECK(!contains(finished.error, "instead of")); // all rows are multiples of 256
        output(quantize({demo, three, type, "3", "--allow-requantize", "--overwrite"}));
        CHECK(slurp(one) == slurp(three));
        CHECK(open_model_file(one).integer("general.file_type") == file_type);
        CHECK(fs::file_size(one) > size); // each has more bits than the one before
        size = fs::file_size(one);
        CHECK(logits(one) != logits(demo));
    }
}

TEST_CASE("rows that are no multiple of 256 are in blocks of 32, which a note says") {
    const Place place;
    const std::string from = place.path("f32.gguf"), to = place.path("out.gguf");
    write_random_model(from, {small_config(), GgmlType::F32, true, 1, {}});
    const auto types = [&] {
        std::map<std::string, int> counts;
        const ModelFile file = open_model_file(to);
        for (const FileTensor& t : file.tensors()) ++counts[type_name(t.type)];
        counts.erase("F32");
        return counts;
    };
    const Finished low = quantize({from, to, "Q2_K"});
    CHECK(low.status == 0);
    CHECK(types() == std::map<std::string, int>{{"Q3_K", 2}, {"Q4_0", 12}, {"Q8_0", 1}}); // rows of 512; of 64 and 96; the head
    CHECK_MESSAGE(contains(low.error, "tq-run: Q4_0 instead of Q2_K for 8 matrices, with rows that are no multiple of 256\n"),
                  low.error);
    CHECK(contains(low.error, "Q4_0 instead of Q3_K for 4 matrices"));
    CHECK(contains(low.error, "Q8_0 instead of Q6_K for a matrix"));
    CHECK(logits(to) != logits(from));
    CHECK(contains(quantize({from, to, "Q3_K_L", "--overwrite"}).error, "Q5_1 instead of Q5_K for 4 matrices"));
    CHECK(!contains(quantize({from, to, "Q4_0", "--overwrite", "--pure"}).error, "instead of"));
}

TEST_CASE("what a file costs is measured in the same command") {
    const Place place;
    const TemporaryFile text(
        "Once upon a time there was a small fox. The fox lived in a garden near the river. One day it rained, "
        "and the fox ran home. Then Mira came and gave it an apple. The fox was happy.");
    const std::string same = output(quantize(
        {demo, place.path("a.gguf"), "Q8_0", "-f", text.path().string(), "-c", "32", "--chunks", "1", "--device", "cpu"}));
    CHECK(contains(same, "KL divergence, mean        0 nats"));
    CHECK(contains(same, "perplexity, the new file"));
    const std::string other = output(quantize({demo, place.path("b.gguf"), "Q4_0", "--allow-requantize", "-f",
                                               text.path().string(), "-c", "32", "--chunks", "1", "--device", "cpu"}));
    CHECK(contains(other, "KL divergence, mean"));
    CHECK(!contains(other, "mean        0 nats"));
}

#ifndef _WIN32
TEST_CASE("Ctrl-C says how far it came, and whether anything is kept") {
    const Place place;
    Config large = small_config();
    large.hidden_size = 512;
    large.vocab_size = 16384; // one thread takes a while for each matrix of the vocabulary's size
    write_random_model(place.path("in.gguf"), {.config = large, .type = GgmlType::F16, .tied = false});
    const std::string out = place.path("out.gguf");
    const Command command{{TQ_RUN, "quantize", place.path("in.gguf"), out, "Q3_K_L", "-t", "1"}, "", {}};
    // The program runs a millisecond at a time until its log has `lines` lines: of the run, and of each tensor.
    const auto stop_at = [&](int lines) {
        return run_in_shell(command, "\"$@\" >$out & p=$!; until [ \"$(grep -c check " + out + ".part.log 2>&1)\" -ge " +
                                         std::to_string(lines) +
                                         " ] 2>&-; do kill -CONT $p || exit; sleep 0.001; kill -STOP $p; done; "
                                         "kill -INT $p; kill -CONT $p; wait $p");
    };
    const Finished early = stop_at(1);
    CHECK(early.status == 130);
    CHECK_MESSAGE(contains(early.error, "stopped before the first tensor was finished, and nothing is kept"), early.error);
    CHECK(!place.has("out.gguf.part"));
    const Finished later = stop_at(3);
    CHECK(later.status == 130);
    CHECK_MESSAGE(contains(later.error, "stopped after 2 of "), later.error);
    CHECK(place.has("out.gguf.part"));
    CHECK(contains(tq_run({"quantize", place.path("in.gguf"), out, "Q3_K_L"}).error, "going on after 2 of "));
}

TEST_CASE("a run that ends in the middle is gone on with, whatever of it is left") {
    const Place whole, place;
    const std::vector<std::string> arguments{demo, place.path("out.gguf"), "Q5_K_M", "--allow-requantize"};
    output(quantize({demo, whole.path("out.gguf"), "Q5_K_M", "--allow-requantize"}));
    const std::string bytes = slurp(whole.path("out.gguf"));
    const auto end_early = [&](int blocks) { // of 512 bytes, which the disk has room for, nearly
        Command command{{TQ_RUN, "quantize"}, {}, {}};
        command.arguments.insert(command.arguments.end(), arguments.begin(), arguments.end());
        const Finished full = run_in_shell(command, "ulimit -f " + std::to_string(blocks) + R"(; "$@" >"$out")");
        CHECK(full.status == 1);
        CHECK_MESSAGE(contains(full.error, "cannot write"), full.error);
        const bool is_kept = blocks > 100;
        CHECK_MESSAGE(contains(full.error, is_kept ? "; the same command goes on with it later" : "; nothing is kept"),
                      full.error);
        CHECK(place.has("out.gguf.part") == is_kept);
        CHECK(!place.has("out.gguf"));
    };
    for (const int blocks : {10, 100}) end_early(blocks); // in the header, and in the first tensor
    end_early(3000);
    SUBCASE("all") { CHECK(contains(quantize(arguments).error, "going on after")); }
    SUBCASE("a damaged tensor") {
        std::fstream part(place.path("out.gguf.part"), std::ios::binary | std::ios::in | std::ios::out);
        part.seekp(std::streamoff(fs::file_size(place.path("out.gguf.part")) / 2));
        part << "damage";
        part.close();
        output(quantize(arguments));
    }
    SUBCASE("no log: it may be another program's") {
        fs::remove(place.path("out.gguf.part.log"));
        check_refused(quantize(arguments), 1, "out.gguf.part exists, and is not what a stopped run of this command left");
        CHECK(place.has("out.gguf.part"));
        fs::remove(place.path("out.gguf.part"));
        output(quantize(arguments));
    }
    SUBCASE("a log that is damaged") {
        std::ofstream(place.path("out.gguf.part.log")) << R"({"schema": "tq-run-quantize"})"
                                                       << "\nnonsense\n";
        CHECK(!contains(quantize(arguments).error, "going on after"));
    }
    SUBCASE("the beginning of another type") {
        output(quantize({demo, place.path("out.gguf"), "Q4_0", "--allow-requantize"}));
        CHECK(slurp(place.path("out.gguf")) != bytes);
        output(quantize({demo, place.path("out.gguf"), "Q5_K_M", "--allow-requantize", "--overwrite"}));
    }
    CHECK(slurp(place.path("out.gguf")) == bytes);
    CHECK(std::distance(fs::directory_iterator(place.directory.path()), {}) == 1); // no .part or log
}
#endif

TEST_CASE("what is refused, and leaves no file") {
    const Place place;
    const std::string out = place.path("out.gguf");
    check_refused(quantize({demo, out, "IQ3_S"}), 2, "one of F32 F16 BF16");
    check_refused(quantize({demo, out}), 2, "type");
    check_refused(quantize({demo, "", "Q8_0"}), 2, "out: it is empty: name a file");
    check_refused(quantize({place.path("none.gguf"), out, "Q4_0"}), 1, "none.gguf");
    check_refused(quantize({demo, demo, "Q8_0", "--overwrite"}), 1, "would be written over");
    check_refused(quantize({demo, place.directory.path().string(), "Q8_0"}), 1, "is a directory");
    check_refused(quantize({demo, place.path("none/out.gguf"), "Q8_0"}), 1, "cannot write");
    check_refused(quantize({demo, out, "Q8_0", "--output-tensor-type", "iq4_nl"}), 2, "--output-tensor-type");
    check_refused(quantize({demo, out, "Q8_0", "-f", place.path("none.txt")}), 1, "none.txt"); // before the work
    check_refused(quantize({demo, out, "Q8_0", "-f", demo, "--device", "no such"}), 2, "no such");
    fs::create_directories(place.path("out.gguf.part.log/full"));
    check_refused(quantize({demo, out, "Q8_0"}), 1, "out.gguf.part.log is not a regular file");
    CHECK(!place.has("out.gguf.part"));
    fs::remove_all(place.path("out.gguf.part.log"));
    std::ofstream(out) << "mine";
    check_refused(quantize({demo, out, "Q8_0"}), 1, "exists: name another file, or give --overwrite");
    CHECK(slurp(out) == "mine");
    fs::remove(out);
    CHECK(fs::is_empty(place.directory.path()));
}

TEST_CASE("no file that is read is written over") {
    const Place place;
    const std::string out = place.path("out.gguf"), part = place.path("out.gguf.part"), bytes = slurp(demo);
    const auto check_kept = [&](std::vector<std::string> arguments, const std::string& input) {
        arguments.insert(arguments.end(), {"--overwrite", "--allow-requantize"});
        const std::string before = slurp(input);
        check_refused(quantize(std::move(arguments)), 1, "would be written over");
        CHECK(slurp(input) == before);
    };
    fs::copy_file(demo, part);
    check_kept({part, out, "Q4_0"}, part);
    check_kept({demo, out, "Q4_0", "--imatrix", part}, part);
    check_kept({demo, out, "Q4_0", "-f", part}, part);
    fs::rename(part, place.path("in.gguf"));
    fs::create_hard_link(place.path("in.gguf"), part);
    check_kept({place.path("in.gguf"), out, "Q4_0"}, part);
    fs::remove(part);
    const std::string directory = place.path("directory");
    fs::copy(test_data("qwen3-tied-hf"), directory);
    for (const auto& file : fs::directory_iterator(directory))
        check_kept({directory, file.path().string(), "Q4_0"}, file.path().string());
#ifndef _WIN32
    fs::create_symlink(place.path("in.gguf"), part);
    check_kept({place.path("in.gguf"), out, "Q4_0"}, part);
    check_refused(quantize({demo, out, "Q8_0"}), 1, "is a link");
    CHECK(slurp(place.path("in.gguf")) == bytes);
#endif
}

TEST_CASE("no file of another program beside the new one is deleted") {
    const Place place;
    const std::string out = place.path("out.gguf");
    const auto check_kept = [&](const char* name, const std::string& bytes) {
        std::ofstream(place.path(name), std::ios::binary) << bytes;
        for (const bool overwrite : {false, true}) {
            std::vector<std::string> arguments{demo, out, "Q8_0"};
            if (overwrite) arguments.push_back("--overwrite");
            check_refused(quantize(arguments), 1, "exists, and is not what a stopped run of this command left");
            CHECK(slurp(place.path(name)) == bytes);
        }
        CHECK(std::distance(fs::directory_iterator(place.directory.path()), {}) == 1);
        fs::remove(place.path(name));
    };
    check_kept("out.gguf.part", "GGUF, and half of a download");
    check_kept("out.gguf.part.log", "{}\n");
    check_kept("out.gguf.part.log", R"({"schema": "tq-run-ablate"})");
    check_kept("out.gguf.part.log", std::string(100000, 'x'));
    check_kept("out.gguf.part.lock", "12345\n");
    for (const char* name : {"out.gguf.part", "out.gguf.part.log", "out.gguf.part.lock"}) std::ofstream(place.path(name)) << "";
    output(quantize({demo, out, "Q8_0"})); // empty ones
    CHECK(std::distance(fs::directory_iterator(place.directory.path()), {}) == 1);
}

TEST_CASE("a weight that is NaN is named, and F16 has no room for all of F32") {
    const Place place;
    const std::string from = place.path("model.gguf"), out = place.path("out.gguf");
    write_random_model(from, {small_config(), GgmlType::F32, true, 1, {}});
    const auto damage = [&](float value) {
        const ModelFile file = open_model_file(from);
        const auto data = file.find_tensor("blk.1.ffn_up.weight")->data;
        const auto at = std::string_view(slurp(from)).find({reinterpret_cast<const char*>(data.data()), 64});
        std::fstream bytes(from, std::ios::binary | std::ios::in | std::ios::out);
        bytes.seekp(std::streamoff(at + 5 * 64 * 4)); // row 5
        bytes.write(reinterpret_cast<const char*>(&value), 4);
    };
    damage(1e6f);
    check_refused(quantize({from, out, "F16"}), 1,
                  "'blk.1.ffn_up.weight', row 5: a weight is NaN, infinite or too large for F16");
    CHECK(quantize({from, out, "BF16", "--overwrite"}).status == 0);
    damage(std::nanf(""));
    check_refused(quantize({from, out, "Q8_0", "--overwrite"}), 1, "blk.1.ffn_up.weight', row 5");
    CHECK(std::distance(fs::directory_iterator(place.directory.path()), {}) == 2); // the same command would fail again
}

TEST_CASE("importances of columns, as llama-imatrix writes them") {
    const Place place;
    const std::string f16 = place.path("f16.gguf"), plain = place.path("plain.gguf"), out = place.path("out.gguf");
    output(quantize({demo, f16, "F16", "--allow-requantize"}));
    output(quantize({f16, plain, "Q4_K_S"}));
    const ModelFile model = open_model_file(f16);
    const FileTensor& matrix = *model.find_tensor("blk.0.ffn_down.weight");
    // kind: general.type; columns: of the sums; first: the first sum; count: of tokens
    const auto imatrix = [&](const char* kind, uint64_t columns, float first, const char* name = "blk.0.ffn_down.weight",
                             float count = 1) {
        GgufWriter writer;
        writer.set("general.type", std::string_view(kind));
        writer.add_tensor(std::string(name) + ".in_sum2", GgmlType::F32, {columns, 1});
        writer.add_tensor(std::string(name) + ".counts", GgmlType::F32, {1, 1});
        std::ofstream file(place.path("imatrix.gguf"), std::ios::binary);
        writer.write(file, [&](size_t i, std::ostream& to) {
            for (uint64_t k = 0; k < (i == 0 ? columns : 1); ++k)
                to << raw(i == 1 ? count : k == 0 ? first : float(1 + k % 7 * 10));
        });
        file.close();
        return quantize({f16, out, "Q4_K_S", "--overwrite", "--imatrix", place.path("imatrix.gguf")});
    };
    const Finished counted = imatrix("imatrix", matrix.ne[0], 5);
    output(counted);
    CHECK(slurp(out) != slurp(plain));
    CHECK_MESSAGE(contains(counted.error, "tq-run: importances of 1 of 29 matrices\n"), counted.error);
    const std::string file = place.path("imatrix.gguf");
    CHECK(contains(quantize({f16, out, "Q8_0", "--overwrite", "--imatrix", file}).error,
                   "tq-run: importances of 1 of 29 matrices; Q8_0 does not use them\n"));
    CHECK(contains(quantize({f16, out, "Q4_K_S", "--overwrite", "--imatrix", file, "--output-tensor-type", "q4_0"}).error,
                   "; Q4_0 does not use them"));
    CHECK(contains(quantize({demo, out, "F16", "--overwrite", "--allow-requantize", "--imatrix", file}).error,
                   "tq-run: no matrix is quantised, and importances are not used\n"));
    check_refused(imatrix("imatrix", matrix.ne[0], 0, "blk.0.ffn_down.weight", 0), 1, "all 0: llama-imatrix counted no token");
    check_refused(imatrix("model", matrix.ne[0], 5), 1, "is not an imatrix");
    check_refused(imatrix("imatrix", matrix.ne[0] + 32, 5), 1, "of another model");
    check_refused(imatrix("imatrix", matrix.ne[0], -1), 1, "has the value -1");
    check_refused(imatrix("imatrix", matrix.ne[0], 5, "blk.0.other.weight"), 1, "of another model");
    std::ofstream(place.path("imatrix.gguf"), std::ios::binary) << std::string(64, '\1');
    check_refused(quantize({f16, out, "Q4_K_S", "--overwrite", "--imatrix", place.path("imatrix.gguf")}), 1, "older format");
}
