// The fingerprint of a model: it covers every byte of every tensor, read once as long as the file is unchanged.
#include "base/error.h"
#include "model/files/fingerprint.h"
#include "model/files/formats/gguf.h"
#include "tests/support/random_model.h"
#include "tests/support/temporary_file.h"
#include "tests/support/text.h"
#include <cstdlib>
#include <doctest/doctest.h>
#include <functional>

using namespace tq;
using namespace tq::test;
namespace fs = std::filesystem;

namespace {

void set_cache_directory(const fs::path& path) {
#ifdef _WIN32
    _putenv_s("TQ_CACHE_DIR", path.string().c_str());
#else
    setenv("TQ_CACHE_DIR", path.c_str(), 1);
#endif
}

struct Print {
    std::string text;
    bool was_read; // all of the model
};

Print print_of(const fs::path& path, const std::function<void(Weights&)>& change = {}) {
    const ModelFile file = read_gguf(path);
    const Config config = read_config(file);
    Weights weights = read_weights(file, config);
    if (change) change(weights);
    uint64_t read = 0, all = 0;
    const std::string text = model_fingerprint(config, weights, [&](uint64_t done, uint64_t total) {
        read = done;
        all = total;
        return true;
    });
    CHECK(read == all);
    return {text, all != 0};
}

// A model file of its own, last changed an hour ago, and a directory for its stored fingerprint.
struct Place {
    TemporaryDirectory directory;
    fs::path model = directory.path() / "model.gguf", kept = directory.path() / "cache" / "fingerprints";

    Place() {
        set_cache_directory(directory.path() / "cache");
        write_random_model(model, {small_config()});
        age(std::chrono::hours(1));
    }
    ~Place() { set_cache_directory({}); }
    void age(std::chrono::nanoseconds by) const { fs::last_write_time(model, fs::file_time_type::clock::now() - by); }
    size_t kept_files() const { return fs::exists(kept) ? size_t(std::distance(fs::directory_iterator(kept), {})) : 0; }
};

} // namespace

TEST_CASE("no byte of any row is left out") {
    const Place place;
    const std::string whole = print_of(place.model).text;
    CHECK(whole.size() == 16);
    const auto with_a_byte_of = [&](auto tensor, uint32_t row) {
        std::vector<std::byte> bytes;
        return print_of(place.model,
                        [&](Weights& weights) {
                            Tensor& t = tensor(weights);
                            bytes.assign(t.data.begin(), t.data.end());
                            bytes[row * t.row_bytes() + 7] ^= std::byte(1);
                            t.data = bytes;
                            weights.files.clear(); // they no longer describe it
                        })
            .text;
    };
    const auto ffn_down = [](Weights& w) -> Tensor& { return w.layers[1].ffn_down; };
    for (const uint32_t row : {0u, 1u, 17u, 63u}) CHECK(with_a_byte_of(ffn_down, row) != whole); // of 64
    CHECK(with_a_byte_of([](Weights& w) -> Tensor& { return w.token_embd; }, 100) != whole);
    CHECK(with_a_byte_of([](Weights& w) -> Tensor& { return w.layers[0].attn_norm; }, 0) != whole);
    CHECK(print_of(place.model, [](Weights& w) { w.files.clear(); }).text == whole);
    const fs::path copy = place.directory.path() / "copy.gguf"; // the same model elsewhere
    fs::copy_file(place.model, copy);
    CHECK(print_of(copy).text == whole);
}

TEST_CASE("a model that stays as it is is read once") {
    const Place place;
    const Print first = print_of(place.model);
    CHECK(first.was_read);
    CHECK(place.kept_files() == 1);
    const Print second = print_of(place.model);
    CHECK(second.text == first.text);
    CHECK(!second.was_read);
    CHECK(print_of(place.model, [](Weights& w) { w.files.clear(); }).was_read); // of no file

    SUBCASE("after any change of the file it is read again") {
        write_random_model(place.model, {.config = small_config(), .seed = 2});
        place.age(std::chrono::hours(2));
        const Print changed = print_of(place.model);
        CHECK(changed.was_read);
        CHECK(changed.text != first.text);
    }
    SUBCASE("what was changed just now is not trusted to have another time after the next change") {
        place.age({});
        CHECK(print_of(place.model).was_read);
        CHECK(print_of(place.model).was_read);
        CHECK(place.kept_files() == 1);
    }
    SUBCASE("what is kept and damaged is not believed") {
        const fs::path file = fs::directory_iterator(place.kept)->path();
        const std::string good = slurp(file);
        for (const std::string& bad : {std::string(), good.substr(0, 20), good + "x", "x" + good.substr(1),
                                       good.substr(0, good.size() - 2) + "g\n", std::string(good.size(), '0')}) {
            std::ofstream(file, std::ios::binary) << bad;
            const Print again = print_of(place.model);
            CHECK(again.was_read);
            CHECK(again.text == first.text);
            CHECK(!print_of(place.model).was_read); // it is good again
        }
    }
}

TEST_CASE("hashing can be stopped") {
    const Place place;
    const ModelFile file = read_gguf(place.model);
    const Config config = read_config(file);
    CHECK_THROWS_AS(model_fingerprint(config, read_weights(file, config), [](uint64_t, uint64_t) { return false; }), LoadStopped);
    CHECK(place.kept_files() == 0);
}
