// Texts into tokens and back, as llama.cpp's clients and vLLM's ask.
#include "tests/support/sanitized.h"
#include "tests/support/served_model.h"
#include "tests/tools/server/chat_answers.h"
#ifdef __linux__
#include "tests/tools/server/raw_client.h"
#include "tools/server/http_server.h"
#include <atomic>
#include <cstring>
#include <fstream>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#endif

using namespace tq;
using namespace tq::server;

TEST_CASE("a text, a prompt or messages become the ids that an answer would begin with") {
    ScriptedServer server("x");
    const Json ids = server.model.tokenizer.encode("Count <|im_end|>");
    for (const char* field : {"content", "prompt"}) {
        const Json answer = server.answer(tokenize, {{field, "Count <|im_end|>"}});
        CHECK(answer.at("tokens") == ids);
        CHECK(answer.at("count") == ids.size());
        CHECK(answer.at("max_model_len") == server.scheduler.context_size());
    }
    const Json pieces = server.answer(tokenize, {{"content", "Co"}, {"with_pieces", true}}).at("tokens");
    CHECK(pieces.at(0).contains("piece"));
    CHECK(server.answer(tokenize, {{"content", "<|im_end|>"}, {"parse_special", false}}).at("count") > 1);
    const Json chat = chat_body("Count");
    CHECK(server.answer(tokenize, chat).at("count") == server.answer(chat_completions, chat).at("usage").at("prompt_tokens"));
    const Json text = server.answer(detokenize, {{"tokens", ids}});
    CHECK(text.at("content") == "Count <|im_end|>");
    CHECK(text.at("prompt") == text.at("content"));
    CHECK(refused_field([&] { server.post(tokenize, "{}"); }) == "content");
    CHECK(refused_field([&] { server.post(tokenize, R"({"prompt": 1})"); }) == "prompt");
    CHECK(refused_field([&] { server.post(detokenize, R"({"tokens": [-1]})"); }) == "tokens");
}

TEST_CASE("a long text has its tokens in a stream, and one that is too long is refused") {
    ServiceOptions options = ScriptedServer::greedy();
    options.limits.counted_bytes = 20'000;
    ScriptedServer server([](const std::string&) { return "x"; }, ChatVariant::instruct, options, {.context_size = 1024});
    std::string text;
    while (text.size() < 19'980) text += "Count \xF0\x9F\x98\x80 ";
    const std::vector<uint32_t> ids = server.model.tokenizer.encode(text);
    for (const bool with_pieces : {false, true}) {
        const HttpReply reply = server.post(tokenize, Json{{"content", text}, {"with_pieces", with_pieces}}.dump());
        REQUIRE(reply.stream);
        std::string sent, bytes;
        reply.stream(Send([&](std::string_view part, bool) { return sent += part, true; }));
        const Json answer = Json::parse(sent);
        CHECK(answer.at("count") == ids.size());
        if (!with_pieces) CHECK(answer.at("tokens") == Json(ids));
        for (const Json& token : answer.at("tokens")) {
            if (!with_pieces) continue;
            if (token.at("piece").is_string()) bytes += token.at("piece").get<std::string>();
            if (token.at("piece").is_array())
                for (const Json& byte : token.at("piece")) bytes += char(byte.get<uint32_t>());
        }
        CHECK(bytes == (with_pieces ? text : ""));
    }
    const std::string longer(80'000, 'a');
    const auto field = [&](HttpReply (*handle)(Service&, const HttpRequest&), const Json& body) {
        return refused_field([&] { server.post(handle, body.dump()); });
    };
    CHECK(field(tokenize, {{"content", longer}}) == "content");
    CHECK(field(tokenize, {{"prompt", longer}}) == "prompt");
    CHECK(field(tokenize, chat_body(longer)) == "messages");
    CHECK(field(apply_template, chat_body(longer)) == "messages");
    CHECK(field(count_tokens, chat_body(longer)) == "messages");
    CHECK(field(response_input_tokens, {{"input", longer}}) == "messages");
    CHECK(field(detokenize, {{"tokens", std::vector<uint32_t>(30'000, ids[0])}}) == "tokens");
    CHECK(field(embeddings, {{"input", longer}}) == "input");
    CHECK(field(embedding, {{"content", {"a", longer}}}) == "content[1]");
    CHECK(field(ollama_embed, {{"input", longer}}) == "input");
    CHECK(field(rerank, {{"query", "a"}, {"documents", {"b", longer}}}) == "documents[1]");
    CHECK(field(completions, {{"prompt", longer}}) == "prompt");
    CHECK(field(completion, {{"prompt", longer}}) == "prompt");
    CHECK(field(infill, {{"input_prefix", longer}}) == "prompt");
}

#ifdef __linux__
// Returns a size of this process in bytes, such as "VmRSS:".
static size_t process_bytes(const char* name) {
    std::ifstream status("/proc/self/status");
    for (std::string line; std::getline(status, line);)
        if (line.starts_with(name)) return size_t(std::stoull(line.substr(std::strlen(name)))) << 10;
    return 0;
}

// Returns how much more memory the process had at most while it ran, in bytes.
static size_t peak_of(const std::function<void()>& run) {
    std::ofstream("/proc/self/clear_refs") << "5"; // VmHWM begins anew
    const size_t before = process_bytes("VmRSS:");
    run();
    return process_bytes("VmHWM:") - before;
}

// The same in MiB, in a child process, so that no memory of other tests is used again. `run` returns whether all went as it
// should.
static size_t peak_of_child_mib(const std::function<bool(ScriptedServer& server)>& run,
                                const test::ScriptedOptions& options = {}) {
    int ends[2];
    REQUIRE(pipe(ends) == 0);
    const pid_t child = fork();
    REQUIRE(child >= 0);
    size_t told = SIZE_MAX;
    if (child == 0) {
        ScriptedServer server([](const std::string&) { return "x"; }, ChatVariant::instruct, ScriptedServer::greedy(), options);
        bool right = false;
        const size_t peak = peak_of([&] { right = run(server); });
        told = right ? peak >> 20 : SIZE_MAX;
        _exit(write(ends[1], &told, sizeof(told)) == ssize_t(sizeof(told)) ? 0 : 1);
    }
    close(ends[1]);
    CHECK(read(ends[0], &told, sizeof(told)) == ssize_t(sizeof(told)));
    close(ends[0]);
    waitpid(child, nullptr, 0);
    return told;
}

TEST_CASE("a body that cannot be answered takes a few times its bytes") {
    if (test::sanitized) return; // sanitizers keep memory that was freed
    const size_t megabytes = 8;
    const std::string longest(megabytes << 20, 'a');
    const auto body = [&](const std::string& before, const std::string& after) { return before + longest + after; };
    const std::string format = R"({"messages": [{"role": "user", "content": "a"}], "response_format": {"type": "json_schema", )"
                               R"("json_schema": {"name": "a", "strict": true, "schema": )";
    std::string parts = "{";
    while (parts.size() < longest.size()) parts += R"("properties": {"a": {"type": "string"}}}, {)";
    std::string patterns = "{}", letters;
    while (letters.size() < 60'000) letters += R"(\\p{L})";
    while (patterns.size() < longest.size())
        patterns += R"(,{"type": "string", "pattern": ")" + letters + std::to_string(patterns.size()) + R"("})";
    const struct {
        HttpReply (*handle)(Service&, const HttpRequest&);
        std::string body;
        size_t times = 10;
    } requests[] = {
        {embeddings, body(R"({"input": ")", R"("})")},
        {rerank, body(R"({"query": "a", "documents": [")", R"("]})")},
        {tokenize, body(R"({"content": ")", R"("})")},
        {count_tokens, body(R"({"messages": [{"role": "user", "content": ")", R"("}]})")},
        {chat_completions, body(format + R"({"type": "string", "pattern": ")", R"("}}}})")},
        {chat_completions, format + R"({"allOf": [)" + patterns + "]}}}}"},
        {chat_completions, format + R"({"allOf": [)" + parts + "}]}}}}", 26}, // its JSON in memory, and once more
    };
    for (const auto& request : requests) {
        CAPTURE(request.body.substr(0, 100));
        const size_t peak = peak_of_child_mib([&](ScriptedServer& server) {
            try {
                server.post(request.handle, request.body);
            } catch (const ApiError&) {
                return true;
            }
            return false;
        });
        CHECK(peak > 0);
        CHECK(peak < request.times * megabytes);
    }
}

TEST_CASE("the tree of a body is gone while its answer is made") {
    if (test::sanitized) return;
    constexpr size_t requests = 8, megabytes = 2; // each a tree of some 40 MiB
    std::string lists = "[[]";
    while (lists.size() < megabytes << 20) lists += ",[]";
    std::atomic<bool> go_on = false;
    const auto wait = [&](uint64_t) { go_on.wait(false); };
    const struct {
        HttpReply (*handle)(Service&, const HttpRequest&);
        std::string begin;
    } all[] = {{chat_completions, R"({"messages": [{"role": "user", "content": "a"}], "metadata": )"},
               {responses, R"({"input": "a", "metadata": {"a": )"}};
    for (const auto& [handle, begin] : all) {
        CAPTURE(begin);
        const std::string body = begin + lists + (handle == responses ? "]}}" : "]}");
        const auto all_wait = [&](ScriptedServer& server) {
            const size_t before = process_bytes("VmRSS:");
            std::vector<std::thread> clients;
            for (size_t i = 0; i < requests; ++i)
                clients.emplace_back([&server, &body, handle = handle] { server.post(handle, body); });
            const auto status = [&] { return server.scheduler.status(); };
            const auto asked = [&] { return status().waiting + status().running == requests; };
            const auto is_gone = [&] { return process_bytes("VmRSS:") < before + (200 << 20); };
            const auto last = std::chrono::steady_clock::now() + std::chrono::minutes(1);
            while (!(asked() && is_gone()) && std::chrono::steady_clock::now() < last)
                std::this_thread::sleep_for(std::chrono::milliseconds(10));
            const bool right = is_gone();
            go_on = true;
            go_on.notify_all();
            for (std::thread& client : clients) client.join();
            return right;
        };
        CHECK(peak_of_child_mib(all_wait, {.before_pass = wait}) != SIZE_MAX);
    }
}

TEST_CASE("tokens of requests that wait are within the limit of all bodies") {
    if (test::sanitized) return;
    constexpr uint64_t limit = uint64_t(4) << 20;
    std::string ids = "[1";
    for (int i = 0; i < 3999; ++i) ids += ",1";
    std::string body = R"({"stream": true, "prompt": [)" + ids + "]";
    while (body.size() < limit / 4) body += "," + ids + "]";
    body += "]}";
    std::atomic<bool> go_on = false;
    size_t served = 0, refused = 0;
    const auto wait = [&](uint64_t) { go_on.wait(false); };
    const auto all_wait = [&](ScriptedServer& server) {
        HttpServer http(
            {.bodies_bytes = limit}, [&](const HttpRequest& request) { return completions(server.service, request); },
            [](int status, const std::string&, const std::string&) { return HttpReply{.status = status}; });
        std::vector<RawClient> clients;
        for (int i = 0; i < 60; ++i) {
            clients.emplace_back(http.port()).send(post("/v1/completions", body));
            const int status = status_of(clients.back().read("\r\n\r\n"));
            served += status == 200, refused += status == 503;
        }
        go_on = true;
        go_on.notify_all();
        return served >= 3 && served + refused == 60;
    };
    const size_t peak = peak_of_child_mib(all_wait, {.before_pass = wait});
    CHECK(peak > 0);
    CHECK(peak < 20 * (limit >> 20));
}
#endif

TEST_CASE("what a tokenizer adds is known by its text") {
    ScriptedServer server("x");
    const Json info = server.answer(tokenizer_info, Json::object());
    CHECK(info.at("bos_token").is_null());
    CHECK(info.at("eos_token") == "<|im_end|>");
    CHECK(info.at("model_max_length") == server.scheduler.context_size());
    CHECK(info.contains("chat_template"));
}

TEST_CASE("what is known of a tokenizer is what was loaded") {
    using Values = std::vector<uint64_t>;
    for (const auto& [ends, padding, pad_token] :
         {std::tuple<ModelFile::Value, ModelFile::Value, Json>(uint64_t(1021), int64_t(-1), nullptr),
          {Values{1021, 1022}, uint64_t(1) << 40, nullptr},
          {Values{1021}, uint64_t(1021), "<|im_end|>"}}) {
        Model model = load_model(std::filesystem::path(TQ_SOURCE_DIR) / "tools/demo-model/demo-q8_0.gguf");
        auto& keys = model.file.mutable_metadata();
        keys["tokenizer.ggml.eos_token_id"] = ends;
        keys["tokenizer.ggml.padding_token_id"] = padding;
        keys["tokenizer.ggml.add_eos_token"] = true;
        keys["qwen3.pooling_type"] = int64_t(-1);
        Tokenizer tokenizer(model.file);
        const Model named{.file = std::move(model.file),
                          .config = model.config,
                          .weights = std::move(model.weights),
                          .tokenizer = std::move(tokenizer),
                          .chat = model.chat,
                          .name = model.name};
        test::ServedModel served(named);
        const Json info = served.answer(tokenizer_info, Json::object());
        CHECK(info.at("eos_token") == "<|im_end|>");
        CHECK(info.at("pad_token") == pad_token);
        const auto ids = named.tokenizer.encode("A small cat.");
        CHECK(served.answer(embeddings, {{"input", "A small cat."}}).at("usage").at("prompt_tokens") == ids.size() + 1);
    }
}
