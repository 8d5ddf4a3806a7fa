// What is where. Paths without /v1 are llama.cpp's, where they have the same form as those with it.
#include "tools/server/handlers.h"
#include <array>

namespace tq::server {

std::span<const Route> routes() {
    constexpr Envelope anthropic = Envelope::anthropic;
    static constexpr std::array all{
        Route{"POST", "/v1/chat/completions", chat_completions},
        Route{"POST", "/chat/completions", chat_completions},
        Route{"POST", "/v1/completions", completions},
        Route{"POST", "/v1/responses", responses},
        Route{"POST", "/responses", responses},
        Route{"POST", "/v1/responses/input_tokens", response_input_tokens},
        Route{"GET", "/v1/responses/*", stored_response},
        Route{"DELETE", "/v1/responses/*", stored_response},
        Route{"POST", "/v1/responses/*", stored_response},
        Route{"POST", "/v1/embeddings", embeddings},
        Route{"POST", "/embeddings", embeddings},
        Route{"GET", "/v1/models", list_models},
        Route{"GET", "/v1/models/*", list_models},
        Route{"GET", "/models", list_models},
        Route{"POST", "/v1/messages", messages, anthropic},
        Route{"POST", "/v1/messages/count_tokens", count_tokens, anthropic},
        Route{"POST", "/v1/rerank", rerank},
        Route{"POST", "/v1/reranking", rerank},
        Route{"POST", "/rerank", rerank},
        Route{"POST", "/reranking", rerank},
        Route{"POST", "/v1/prefill", prefill},
        Route{"POST", "/completion", completion},
        Route{"POST", "/completions", completion},
        Route{"POST", "/infill", infill},
        Route{"GET", "/props", props},
        Route{"GET", "/slots", slots},
        Route{"GET", "/metrics", metrics},
        Route{"POST", "/tokenize", tokenize},
        Route{"POST", "/detokenize", detokenize},
        Route{"POST", "/apply-template", apply_template},
    };
    return all;
}

} // namespace tq::server
