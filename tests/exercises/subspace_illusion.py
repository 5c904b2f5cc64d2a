"""Wrong but plausible answers to the exercises of subspace-illusion; each check must reject every one of them."""

import torch


def exercise_1():
    def without_length(v, w):
        q = torch.linalg.qr(w).Q
        return q @ (q.T @ v)

    def there_and_back(v, w):
        part = w @ (w.T @ v)
        return part / part.norm()

    def silent_instead(v, w):
        q = torch.linalg.qr(w).Q
        part = v - q @ (q.T @ v)
        return part / part.norm()

    def in_the_stream(v, w):
        part = v @ w
        return part / part.norm()

    def unchanged(v, w):
        return v / v.norm()

    def neurons_without_weights_dropped(v, w):
        part = v * (w.norm(dim=1) > 0)
        return part / part.norm()

    return [
        without_length,
        there_and_back,
        silent_instead,
        in_the_stream,
        unchanged,
        neurons_without_weights_dropped,
    ]


def exercise_2():
    def everything(base, source, v, w):
        return (source - base) @ w

    def length_forgotten(base, source, v, w):
        return ((source - base) @ v) * (v @ w)

    def not_through_the_weights(base, source, v, w):
        v = v / v.norm()
        return ((source - base) @ v) * v

    def projection_of_the_source(base, source, v, w):
        v = v / v.norm()
        return (source @ v) * (v @ w)

    def as_if_what_is_read_came_back(base, source, v, w):
        v = v / v.norm()
        return ((source - base) @ w) * (v @ w)

    return [
        everything,
        length_forgotten,
        not_through_the_weights,
        projection_of_the_source,
        as_if_what_is_read_came_back,
    ]


def exercise_3():
    def only_silent(difference, w, u):
        return difference / difference.norm()

    def only_read(difference, w, u):
        read = torch.linalg.pinv(w).T @ u
        return read / read.norm()

    def pushed_across(difference, w, u):
        q = torch.linalg.qr(w).Q
        silent = difference - q @ (q.T @ difference)
        read = w @ u
        v = silent / silent.norm() + read / read.norm()
        return v / v.norm()

    def wrong_way(difference, w, u):
        q = torch.linalg.qr(w).Q
        silent = difference - q @ (q.T @ difference)
        read = torch.linalg.pinv(w).T @ u
        v = silent / silent.norm() - read / read.norm()
        return v / v.norm()

    def halves_not_scaled(difference, w, u):
        q = torch.linalg.qr(w).Q
        v = difference - q @ (q.T @ difference) + torch.linalg.pinv(w).T @ u
        return v / v.norm()

    def not_silenced(difference, w, u):
        read = torch.linalg.pinv(w).T @ u
        v = difference / difference.norm() + read / read.norm()
        return v / v.norm()

    return [
        only_silent,
        only_read,
        pushed_across,
        wrong_way,
        halves_not_scaled,
        not_silenced,
    ]
