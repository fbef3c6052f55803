// Thread pool.
#include "threads.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace topsign {
namespace {

struct Job {
    const std::function<void(int)>& body;
    const int n;
    int next = 0;     // slots handed out
    int running = 0;  // slots that have not finished
    std::exception_ptr error = nullptr;
    std::condition_variable ended{};
};

class Pool {
   public:
    void run(int n, const std::function<void(int)>& body) {
        Job job{body, n};
        std::unique_lock<std::mutex> lock(mutex_);
        grow(n - 1);
        jobs_.push_back(&job);
        if (2 * (n - 1) >= int(threads_.size()))
            wake_.notify_all();  // one system call instead of many
        else
            for (int i = 1; i < n; ++i) wake_.notify_one();
        while (job.next < n) take(job, lock);
        job.ended.wait(lock, [&] { return job.running == 0; });
        if (job.error) std::rethrow_exception(job.error);
    }

    void stop() {
        {
            const std::lock_guard<std::mutex> lock(mutex_);
            stopping_ = true;
        }
        wake_.notify_all();
        for (auto& thread : threads_) thread.join();
        threads_.clear();
    }

   private:
    void grow(int n_threads) {
        if (stopping_) return;
        try {
            while (int(threads_.size()) < n_threads) threads_.emplace_back([this] { serve(); });
        } catch (const std::system_error&) {
            // No more threads are available; the calling thread does the remaining work.
        }
    }

    // Runs the next slot of a job, with the lock released.
    void take(Job& job, std::unique_lock<std::mutex>& lock) {
        const int slot = job.next++;
        ++job.running;
        if (job.next == job.n) jobs_.erase(std::find(jobs_.begin(), jobs_.end(), &job));
        lock.unlock();
        std::exception_ptr error;
        try {
            job.body(slot);
        } catch (...) {
            error = std::current_exception();
        }
        lock.lock();
        if (error && !job.error) job.error = error;
        if (--job.running == 0 && job.next == job.n) job.ended.notify_all();
    }

    void serve() {
        std::unique_lock<std::mutex> lock(mutex_);
        while (true) {
            wake_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
            if (jobs_.empty()) return;  // stopping, and no work is left
            take(*jobs_.front(), lock);
        }
    }

    std::mutex mutex_;
    std::condition_variable wake_;
    std::deque<Job*> jobs_;  // jobs with slots left
    std::vector<std::thread> threads_;
    bool stopping_ = false;
};

std::atomic<Pool*> pool{nullptr};

Pool& the_pool() {
    Pool* current = pool.load();
    if (current) return *current;
#if !defined(_WIN32)
    // Threads do not survive a fork, so the child abandons the inherited pool and creates its own.
    static const int registered = pthread_atfork(nullptr, nullptr, [] { pool.store(nullptr); });
    (void)registered;
#endif
    auto* made = new Pool;
    if (pool.compare_exchange_strong(current, made)) return *made;
    delete made;
    return *current;
}

#if !defined(_WIN32)
// Joins the threads at exit. The pool itself is not destroyed, because other threads may still call it.
struct Stopper {
    ~Stopper() {
        if (Pool* current = pool.load()) current->stop();
    }
} stopper;
#endif

}  // namespace

std::atomic<double> grain{100e3};

void run_slots(int n, const std::function<void(int)>& body) {
    if (n <= 1)
        body(0);
    else
        the_pool().run(n, body);
}

}  // namespace topsign
