// An object that each thread has for itself.
#pragma once
#ifdef __MINGW32__
#include <cstdlib>
#include <pthread.h>
#endif

namespace tq {

// Returns the calling thread's object of type T, made at the first call and destroyed when the thread ends. Tag tells two objects
// of one type apart: per_thread<std::vector<float>, struct Gate>().
template <class T, class Tag = T> T& per_thread() {
#ifdef __MINGW32__ // gcc frees the thread_local variables there before it destroys them (its bug 80816)
    static const pthread_key_t key = [] {
        pthread_key_t made;
        if (::pthread_key_create(&made, [](void* object) { delete static_cast<T*>(object); }) != 0) std::abort();
        return made;
    }();
    void* object = ::pthread_getspecific(key);
    if (object == nullptr) {
        object = new T;
        if (::pthread_setspecific(key, object) != 0) std::abort();
    }
    return *static_cast<T*>(object);
#else
    static thread_local T object;
    return object;
#endif
}

} // namespace tq
