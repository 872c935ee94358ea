#include "queues.h"

#include <c10/util/Exception.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <map>
#include <thread>
#include <utility>
#include <vector>

// Python's own, declared here so that its headers need not be installed; the process that loads this has them.
extern "C" {
int Py_IsInitialized(void);
int PyGILState_Check(void);
void* PyEval_SaveThread(void);
void PyEval_RestoreThread(void*);
}

namespace stub {

namespace {

constexpr int64_t kStreams = 32;

std::atomic<bool> is_touched{false};
std::atomic<bool> is_bad_fork{false};
std::atomic<bool> has_failed{false};
std::mutex failure_mutex;
std::exception_ptr failure;

// Never destroyed: threads of queues live until the process ends.
struct Queues {
  std::mutex mutex;
  std::map<std::pair<int, int64_t>, std::unique_ptr<Queue>> all;
  std::map<int, int64_t> last_stream;
};

Queues& queues() {
  static auto* found = new Queues();
  return *found;
}

}  // namespace

int64_t now_ns() {
  return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

void Mark::reach() {
  std::lock_guard<std::mutex> lock(mutex_);
  time_ns_ = now_ns();
  changed_.notify_all();
}

void Mark::wait() {
  std::unique_lock<std::mutex> lock(mutex_);
  changed_.wait(lock, [this] { return time_ns_ != 0; });
}

bool Mark::reached() {
  std::lock_guard<std::mutex> lock(mutex_);
  return time_ns_ != 0;
}

int64_t Mark::time_ns() {
  std::lock_guard<std::mutex> lock(mutex_);
  return time_ns_;
}

void Queue::submit(Work work) {
  throw_failure();
  append([work = std::move(work)] {
    if (has_failed) {
      return;
    }
    try {
      work();
    } catch (...) {
      fail(std::current_exception());
    }
  });
}

void Queue::submit_always(Work work) {
  append(std::move(work));
}

std::shared_ptr<Mark> Queue::mark() {
  auto mark = std::make_shared<Mark>();
  append([mark] { mark->reach(); });
  return mark;
}

void Queue::wait_for(std::shared_ptr<Mark> mark) {
  if (!mark->reached()) {
    append([mark = std::move(mark)] { mark->wait(); });
  }
}

void Queue::start() {
  std::lock_guard<std::mutex> lock(mutex_);
  begin();
}

void Queue::begin() {
  if (!started_) {
    started_ = true;
    std::thread([this] { run(); }).detach();
  }
}

bool Queue::idle() {
  std::lock_guard<std::mutex> lock(mutex_);
  return waiting_.empty() && !running_;
}

void Queue::append(Work work) {
  std::unique_lock<std::mutex> lock(mutex_);
  begin();
  while (waiting_.size() >= kDepth) {
    lock.unlock();
    {
      // The lock goes before Python's own is taken again: its holder may want to append here.
      WithoutInterpreter guard;
      std::unique_lock<std::mutex> room(mutex_);
      changed_.wait(room, [this] { return waiting_.size() < kDepth; });
    }
    lock.lock();
  }
  waiting_.push_back(std::move(work));
  changed_.notify_all();
}

void Queue::run() {
  std::unique_lock<std::mutex> lock(mutex_);
  for (;;) {
    running_ = false;
    changed_.wait(lock, [this] { return !waiting_.empty(); });
    Work work = std::move(waiting_.front());
    waiting_.pop_front();
    running_ = true;
    changed_.notify_all();
    lock.unlock();
    work();
    // What the work holds goes before the queue counts as idle.
    work = nullptr;
    lock.lock();
  }
}

int device_count() {
  static const int count = [] {
    const char* text = std::getenv("STUB_ACCELERATOR_DEVICES");
    return text == nullptr ? 4 : std::atoi(text);
  }();
  return count;
}

Queue& queue(int device, int64_t stream) {
  touch();
  std::lock_guard<std::mutex> lock(queues().mutex);
  auto& found = queues().all[{device, stream}];
  if (!found) {
    found = std::make_unique<Queue>();
  }
  return *found;
}

int64_t new_stream(int device) {
  int64_t number;
  {
    std::lock_guard<std::mutex> lock(queues().mutex);
    auto& last = queues().last_stream[device];
    last = last % kStreams + 1;
    number = last;
  }
  queue(device, number).start();
  return number;
}

void finish(Queue& queue) {
  if (!queue.idle()) {
    auto mark = queue.mark();
    WithoutInterpreter guard;
    mark->wait();
  }
  throw_failure();
}

void finish(int device) {
  touch();
  std::vector<std::shared_ptr<Mark>> marks;
  {
    std::lock_guard<std::mutex> lock(queues().mutex);
    for (auto& [place, queue] : queues().all) {
      if (place.first == device && !queue->idle()) {
        marks.push_back(queue->mark());
      }
    }
  }
  WithoutInterpreter guard;
  for (auto& mark : marks) {
    mark->wait();
  }
  throw_failure();
}

void throw_failure() {
  if (has_failed) {
    std::lock_guard<std::mutex> lock(failure_mutex);
    std::rethrow_exception(failure);
  }
}

void fail(std::exception_ptr error) {
  std::lock_guard<std::mutex> lock(failure_mutex);
  if (!has_failed) {
    failure = error;
    has_failed = true;
  }
}

void touch() {
  TORCH_CHECK(
      !is_bad_fork,
      "Cannot re-initialize the stub accelerator in a forked subprocess. Use the 'spawn' start method.");
  if (!is_touched.exchange(true)) {
    pthread_atfork(nullptr, nullptr, [] { is_bad_fork = true; });
  }
}

bool touched() {
  return is_touched;
}

bool in_bad_fork() {
  return is_bad_fork;
}

WithoutInterpreter::WithoutInterpreter() {
  if (Py_IsInitialized() && PyGILState_Check()) {
    state_ = PyEval_SaveThread();
  }
}

WithoutInterpreter::~WithoutInterpreter() {
  if (state_ != nullptr) {
    PyEval_RestoreThread(state_);
  }
}

}  // namespace stub
