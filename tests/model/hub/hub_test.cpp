// Functions without transfers: names, the choice of files, the cache, the environment; a hub's descriptions of repositories.
#include "base/transfer_meter.h"
#include "model/hub/choice.h"
#include "model/hub/hub.h"
#include "model/hub/hub_cache.h"
#include "model/hub/names.h"
#include "tests/support/hub_server.h"
#include <doctest/doctest.h>

using namespace tq;
using namespace tq::test;
namespace fs = std::filesystem;

namespace {

// Calls f, which must throw an Error that contains `text`.
template <class F> void check_error(F f, const std::string& text) {
    std::string message = "nothing was thrown";
    try {
        f();
    } catch (const Error& error) {
        message = error.what();
    }
    INFO(message);
    CHECK(message.find(text) != std::string::npos);
    CHECK(std::none_of(message.begin(), message.end(), [](char c) { return c < ' ' || c > '~'; }));
}

std::string chosen(const std::vector<std::string>& paths, const HubTarget& target) {
    std::vector<HubFile> files;
    for (const std::string& path : paths) files.push_back({path, 1, {}});
    return choose_files(files, target).model;
}

void write(const fs::path& path, const std::string& bytes) {
    fs::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << bytes;
}

Environment environment(std::vector<std::pair<std::string, std::string>> variables) {
    return [variables](const std::string& name) -> std::optional<std::string> {
        for (const auto& [key, value] : variables)
            if (key == name) return value;
        return std::nullopt;
    };
}

} // namespace

TEST_CASE("the quant in a file's name") {
    CHECK(quant_of("r-Q4_K_M.gguf") == "Q4_K_M");
    CHECK(quant_of("a/r-UD-IQ2_XXS-00001-of-00002.gguf") == "UD-IQ2_XXS");
    CHECK(quant_of("Q8_0/r.q8_0.gguf") == "q8_0");
    CHECK(quant_of("CLOUD-Q8_0.gguf") == "Q8_0");
    CHECK(quant_of("r.gguf") == "r");
}

TEST_CASE("names that become paths and addresses") {
    for (const char* good : {"Qwen/Qwen3-4B-GGUF", "a/b", "a_b/c.d-e", "a/_b_"}) CHECK(is_repository_name(good));
    for (const char* bad : {"", "a", "a/", "/a", "a/b/c", "../b", "a/..", "a/.b", "a/b.", "a/b--c", "-a/b", "a b/c", "a/b?c",
                            "a/b%2f", "a/b\n", "a\\b/c", "\xc3\xa4/b"})
        CHECK_FALSE(is_repository_name(bad));
    CHECK_FALSE(is_repository_name("a/" + std::string(200, 'b')));
    for (const char* good : {"a", "a/b.gguf", "...", "a..b/c", "\xc3\xa4/b c", ".hidden"}) CHECK(is_safe_file_name(good));
    for (const char* bad :
         {"", "/a", "a/", "a//b", "..", "../a", "a/../b", "a/..", ".", "./a", "a\\b", "c:a", "a\nb", "a\x7f", "\x1b"})
        CHECK_FALSE(is_safe_file_name(bad));
    CHECK_FALSE(is_safe_file_name(std::string("a\0b", 3)));
    CHECK_FALSE(is_safe_file_name(std::string(256, 'a')));
    CHECK_FALSE(is_safe_file_name([] {
        std::string deep = "a";
        for (int i = 0; i < 500; i++) deep += "/a";
        return deep;
    }()));
    CHECK(url_path("a b/\xc3\xa4?#%.gguf") == "a%20b/%C3%A4%3F%23%25.gguf");
    CHECK(is_object_id(std::string(64, 'a')));
    CHECK_FALSE(is_object_id(std::string(64, 'A')));
    CHECK_FALSE(is_object_id("../" + std::string(61, 'a')));
    CHECK_FALSE(is_commit(std::string(64, 'a')));
}

TEST_CASE("the file of a quant is chosen as llama.cpp does") {
    const std::vector<std::string> files{"README.md",         "M-BF16.gguf",   "M-IQ4_K_M.gguf",   "M-Q4_0.gguf",
                                         "M-UD-Q4_K_XL.gguf", "M-Q4_K_M.gguf", "M-Q8_0.gguf",      "mmproj-F16.gguf",
                                         "M-Q8_0.gguf.txt",   "config.json",   "imatrix-F32.gguf", "mtp-M-Q6_K.gguf"};
    CHECK(chosen(files, {"a/b", "", ""}) == "M-Q4_K_M.gguf");
    CHECK(chosen(files, {"a/b", "q8_0", ""}) == "M-Q8_0.gguf");
    CHECK(chosen(files, {"a/b", "UD-Q4_K_XL", ""}) == "M-UD-Q4_K_XL.gguf");
    CHECK(chosen(files, {"a/b", "bf16", ""}) == "M-BF16.gguf");
    CHECK(chosen(files, {"a/b", "", "m-q4_0.gguf"}) == "M-Q4_0.gguf");
    CHECK(chosen({"M-F16.gguf", "M-Q8_0.gguf"}, {"a/b", "", ""}) == "M-Q8_0.gguf");
    CHECK(chosen({"mmproj.gguf", "M-F16.gguf", "M-F32.gguf"}, {"a/b", "", ""}) == "M-F16.gguf");
    CHECK(chosen({"m.Q4_K_M.gguf"}, {"a/b", "q4_k_m", ""}) == "m.Q4_K_M.gguf");
    // Q4_K is a whole word in none of the names, F16 only in a projector's, Q6_K only in a companion's.
    for (const char* quant : {"Q4_K", "F16", "Q6_K", "F32", "4_0"})
        check_error(
            [&] {
                chosen(files, {"a/b", quant, ""});
            },
            "has no GGUF file of " + std::string(quant) + "; its quants: BF16, IQ4_K_M, Q4_0, Q4_K_M, Q8_0, UD-Q4_K_XL");
    check_error([&] { chosen(files, {"a/b", "", "other.gguf"}); }, "has no file other.gguf; its quants: BF16");
    check_error([&] { chosen(files, {"a/b", "", "config.json"}); }, "not a GGUF file");
    check_error([&] { chosen({"a.txt"}, {"a/b", "", ""}); }, "neither GGUF files nor safetensors");
    check_error([&] { chosen({"model.safetensors", "config.json"}, {"a/b", "Q8_0", ""}); }, "leave :Q8_0 out");
}

TEST_CASE("a split file is all of its parts, and a repository without GGUF its safetensors") {
    const std::vector<HubFile> split{{"q8/M-Q8_0-00002-of-00003.gguf", 2, "b"},
                                     {"q8/M-Q8_0-00001-of-00003.gguf", 1, "a"},
                                     {"q8/M-Q8_0-00003-of-00003.gguf", 3, "c"}};
    const HubChoice choice = choose_files(split, {"a/b", "", ""});
    CHECK(choice.model == "q8/M-Q8_0-00001-of-00003.gguf");
    REQUIRE(choice.files.size() == 3);
    for (size_t i = 0; i < 3; i++) CHECK(choice.files[i].size == i + 1);
    check_error([&] { chosen({"M-00001-of-00002.gguf"}, {"a/b", "", ""}); }, "lacks M-00002-of-00002.gguf, part 2 of 2");
    check_error([&] { chosen({"M-00001-of-99999.gguf"}, {"a/b", "", ""}); }, "part 1 of 99999");
    check_error([&] { chosen({"M-00001-of-00000.gguf"}, {"a/b", "", ""}); }, "part 1 of 0");
    check_error(
        [&] {
            chosen({"M-00001-of-00002.gguf", "M-00002-of-00002.gguf"}, {"a/b", "", "M-00002-of-00002.gguf"});
        },
        "name the first part");

    const auto safetensors = [](std::vector<std::string> paths) {
        std::vector<HubFile> files;
        for (const std::string& path : paths) files.push_back({path, 1, {}});
        const HubChoice chosen = choose_files(files, {"a/b", "", ""});
        CHECK(chosen.model == "");
        std::string names;
        for (const HubFile& file : chosen.files) names += file.path + ' ';
        return names;
    };
    CHECK(safetensors({"config.json", "model.safetensors", "tokenizer.json", "README.md", "x/model.safetensors",
                       "pytorch_model.bin"}) == "config.json model.safetensors tokenizer.json ");
    CHECK(safetensors(
              {"config.json", "model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "chat_template.jinja"}) ==
          "config.json model-00001-of-00002.safetensors model-00002-of-00002.safetensors chat_template.jinja ");
    check_error(
        [&] {
            safetensors({"config.json", "model-00002-of-00002.safetensors"});
        },
        "lacks model-00001-of-00002.safetensors");
    check_error([&] { safetensors({"model.safetensors"}); }, "with a config.json");
}

TEST_CASE("the environment says where") {
    const auto cache = [](std::vector<std::pair<std::string, std::string>> variables) {
        return hub_options(environment(std::move(variables))).cache.generic_string();
    };
    std::vector<std::pair<std::string, std::string>> all{{"HOME", "/h"},
                                                         {"USERPROFILE", "/h"},
                                                         {"XDG_CACHE_HOME", "/x"},
                                                         {"HF_HOME", "/f"},
                                                         {"HUGGINGFACE_HUB_CACHE", "/old"},
                                                         {"HF_HUB_CACHE", "/hub"},
                                                         {"LLAMA_CACHE", "/l"}};
    for (const char* expected : {"/l", "/hub", "/old", "/f/hub", "/x/huggingface/hub", "/h/.cache/huggingface/hub"}) {
        CHECK(cache(all).starts_with(expected));
        all.pop_back();
    }
    check_error([&] { cache({}); }, "HF_HOME");
    const HubOptions options = hub_options(environment({{"HOME", "/h"}, {"USERPROFILE", "/h"}}));
    CHECK(options.endpoint == "https://huggingface.co");
    CHECK(options.token == "");
    CHECK_FALSE(options.offline);
    const HubOptions set = hub_options(environment({{"LLAMA_CACHE", "/l"},
                                                    {"HF_ENDPOINT", "https://a"},
                                                    {"MODEL_ENDPOINT", "https://b"},
                                                    {"HF_TOKEN", "hf_x"},
                                                    {"HF_HUB_OFFLINE", "True"}}));
    CHECK(set.endpoint == "https://b");
    CHECK(set.token == "hf_x");
    CHECK(set.offline);
    CHECK_FALSE(hub_options(environment({{"LLAMA_CACHE", "/l"}, {"HF_HUB_OFFLINE", "0"}})).offline);
}

TEST_CASE("the progress in words") {
    TransferMeter meter;
    const TransferMeter::Time start{};
    const auto at = [&](int ms, uint64_t done, uint64_t moved) {
        return meter.update(start + std::chrono::milliseconds(ms), done, 400 << 20, moved);
    };
    const uint64_t before = 100 << 20; // from an earlier run: not counted in the rate
    CHECK(at(0, before, 0) == "25 % of 400.0 MiB");
    CHECK(at(200, before + 2'000'000, 2'000'000) == "25 % of 400.0 MiB");
    CHECK(at(1000, before + 10'000'000, 10'000'000) == "27 % of 400.0 MiB, 10.0 MB/s, 0:30 left");
    for (int ms = 1100; ms <= 20'000; ms += 100)
        at(ms, before + 10'000'000 + 100 * uint64_t(ms - 1000), 10'000'000 + 100 * uint64_t(ms - 1000));
    // 0.1 MB/s since then: the first second is ignored.
    CHECK(at(20'000, before + 11'900'000, 11'900'000) == "27 % of 400.0 MiB, 0.1 MB/s, 50:27 left");
    CHECK(at(40'000, before + 11'900'000, 11'900'000) == "27 % of 400.0 MiB");
    CHECK(TransferMeter().update(start, 0, 0, 0) == "0 % of 0.0 MiB");
    CHECK(at(60'000, 400 << 20, uint64_t(1) << 40).ends_with("GB/s, 0:00 left"));
}

TEST_CASE("what huggingface_hub has downloaded is found offline") {
    const TemporaryCache cache;
    HubOptions options;
    options.cache = cache.path();
    options.offline = true;
    options.endpoint = "http://127.0.0.1:1"; // there is no server
    check_error([&] { fetch_model({"test/demo", ""}, options); }, "no file of test/demo is in the cache");

    const fs::path folder = cache.folder("demo"), snapshot = folder / "snapshots" / hub_commit;
    write(folder / "blobs" / std::string(64, 'a'), "GGUF");
    write(folder / "refs" / "main", hub_commit);
    fs::create_directories(snapshot / "q");
    std::error_code no_links; // Windows lets few users make them, and Wine nobody
    fs::create_symlink("../../../blobs/" + std::string(64, 'a'), snapshot / "q" / "M-Q8_0.gguf", no_links);
    if (no_links) write(snapshot / "q" / "M-Q8_0.gguf", "GGUF");
    fs::create_symlink("../../blobs/" + std::string(64, 'b'), snapshot / "M-Q4_K_M.gguf", no_links); // its target was deleted
    write(folder / "snapshots" / std::string(40, 'f') / "M-Q4_0.gguf", "of another commit");
    CHECK(fetch_model({"test/demo", ""}, options) == snapshot / "q" / "M-Q8_0.gguf");
    CHECK(fetch_model({"test/demo:q8_0", ""}, options) == snapshot / "q" / "M-Q8_0.gguf");
    CHECK(fetch_model({"test/demo", "q/m-q8_0.gguf"}, options) == snapshot / "q" / "M-Q8_0.gguf");
    check_error([&] { fetch_model({"test/demo:Q4_K_M", ""}, options); }, "its quants: Q8_0; run it without --offline");

    // Without links, as on Windows, and without a reference.
    const fs::path copied = cache.folder("copied") / "snapshots" / hub_commit;
    for (const char* name : {"config.json", "model-00001-of-00002.safetensors", "tokenizer.json"}) write(copied / name, "x");
    check_error([&] { fetch_model({"test/copied", ""}, options); }, "lacks model-00002-of-00002.safetensors");
    write(copied / "model-00002-of-00002.safetensors", "x");
    CHECK(fetch_model({"test/copied", ""}, options) == copied);
    write(cache.folder("copied") / "refs" / "main", "../../../etc");
    CHECK(fetch_model({"test/copied", ""}, options) == copied); // a name that is not a commit must not be used as a path

    if (!HubServer::find()) return; // this build cannot download either
    // Not offline: no server answers, so the cache is used, with a message.
    options.offline = false;
    options.retries = 1;
    options.retry_delay = std::chrono::milliseconds(1);
    std::string note;
    options.note = [&](const std::string& text) { note = text; };
    CHECK(fetch_model({"test/copied", ""}, options) == copied);
    CHECK(note.starts_with("cannot fetch test/copied from http://127.0.0.1:1: "));
    CHECK(note.ends_with(": using the copy in the cache (--offline does so without asking)"));
    // With a copy there is one attempt; without one there are several, each with a message.
    std::vector<std::string> attempts;
    options.status = [&](const std::string& text) { attempts.push_back(text.substr(0, text.find(':'))); };
    options.retries = 2;
    CHECK(fetch_model({"test/copied", ""}, options) == copied);
    CHECK(attempts.empty());
    check_error(
        [&] {
            fetch_model({"test/absent", ""}, options);
        },
        "cannot fetch test/absent from http://127.0.0.1:1 after 3 attempts");
    CHECK(attempts == std::vector<std::string>{"attempt 2 of 3", "attempt 3 of 3"});
}

TEST_CASE("requests that name nothing") {
    const TemporaryCache cache;
    HubOptions options;
    options.cache = cache.path();
    options.offline = true;
    for (const char* bad : {"demo", "a/b/c", "https://example.com/a/b", "https://huggingface.co/a", "https://huggingface.co/",
                            "https://huggingface.co/a/b\x1b[31m", "../..", "a/b\x1b[31m"})
        check_error([&] { fetch_model({bad, ""}, options); }, "names no repository");
    for (const char* bad : {"a/b:", "a/b:Q4/..", "a/b:.*:", "a/b:\n"})
        check_error([&] { fetch_model({bad, ""}, options); }, "is not the name of a quant");
}

TEST_CASE("a repository by the address of its page") {
    const TemporaryCache cache;
    HubOptions options;
    options.cache = cache.path();
    options.offline = true;
    const fs::path snapshot = cache.folder("demo") / "snapshots" / hub_commit;
    for (const char* name : {"M-Q8_0.gguf", "q/M-F16.gguf"}) write(snapshot / name, "GGUF");
    for (const char* page : {"https://huggingface.co/test/demo", "https://huggingface.co/test/demo/", "hf.co/test/demo:Q8_0",
                             "https://huggingface.co/test/demo/tree/main", "https://hf.co/test/demo?library=gguf"})
        CHECK(fetch_model({page, ""}, options) == snapshot / "M-Q8_0.gguf");
    for (const char* file : {"https://huggingface.co/test/demo/blob/main/q/M-F16.gguf",
                             "https://huggingface.co/test/demo/resolve/main/q/M-F16.gguf?download=true"})
        CHECK(fetch_model({file, ""}, options) == snapshot / "q" / "M-F16.gguf");
    options.endpoint = "https://mirror.example/"; // the pages of another hub
    CHECK(fetch_model({"https://mirror.example/test/demo", ""}, options) == snapshot / "M-Q8_0.gguf");
}

TEST_CASE("what a hub may say") {
    HubServer* server = HubServer::find();
    if (!server) return;
    const TemporaryCache cache;
    HubOptions options = options_for(*server, cache);
    const std::pair<const char*, const char*> cases[]{
        {"absent", "has no test/absent (it says: Repository not found): check the name"},
        {"badjson", "is not JSON"},
        {"hugejson", "has more than 16 MiB"},
        {"deepjson", "nested deeper than 32 levels"},
        {"nocommit", "names no commit"},
        {"listless", "is not a list"},
        {"badoid", "no size or no checksum"},
        {"traversal", "a file with the unsafe name '../../../evil-Q8_0.gguf', which could be outside"},
        {"absolute", "could be outside"},
        {"backslash", "could be outside"},
        {"c1", "a file with the unsafe name 'evil\\xc2\\x9b31m-Q8_0.gguf', which could be outside its directory"},
        {"bidi", "a file with the unsafe name 'evil\\xe2\\x80\\xaefugg-Q8_0.gguf'"},
        {"control", "a file with the unsafe name 'evil\\x1b[31m\\x00-Q8_0.gguf'"},
        {"halfsplit", "lacks m-Q8_0-00002-of-00002.gguf"},
        {"huge", "the download needs 5368709"},
        {"limited", "too many requests from here; wait 3600 s and try again; with a token (HF_TOKEN) it allows more"},
        {"down", "after 6 attempts: it answers with status 503"},
        {"private", "create an access token at http://127.0.0.1"},
        {"gated", "Access to model test/gated is restricted\\x1b[31m"},
        {"loop", "redirects more than 10 times"},
        {"file", "'file:///etc/passwd' is not fetched"},
    };
    for (const auto& [repository, text] : cases) {
        CAPTURE(repository);
        check_error([&, name = repository] { fetch_model({"test/" + std::string(name), ""}, options); }, text);
        for (const char* below : {"blobs", "snapshots", "refs"})
            for (const std::string& name : TemporaryCache::names(cache.folder(repository) / below))
                CHECK_MESSAGE(name.ends_with(".incomplete"), name);
    }
    CHECK_FALSE(fs::exists(cache.path().parent_path() / "evil-Q8_0.gguf"));
    for (const char* bad : {"ftp://127.0.0.1", "file:///etc", "nonsense", "http://user:secret@127.0.0.1", ""}) {
        options.endpoint = bad;
        check_error([&] { fetch_model({"test/demo", ""}, options); }, "etch");
    }
    options.endpoint = server->url();
    options.token = "hf_x\r\nX-Evil: 1";
    try {
        fetch_model({"test/demo", ""}, options);
        CHECK(false);
    } catch (const Error& error) {
        CHECK(std::string(error.what()).find("access token contains an invalid character") != std::string::npos);
        CHECK(std::string(error.what()).find("hf_x") == std::string::npos);
    }
}
